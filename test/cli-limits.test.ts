import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { connect, type Flotilla } from "../src/runtime/connect.ts";
import { sql, table } from "../src/store/sql.ts";
import { openStore } from "../src/store/open.ts";
import { run as runIn } from "./command.ts";

let folder: string;
let flotilla: Flotilla;
const run = (...args: string[]) => runIn(args, { cwd: folder });

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-"));
  flotilla = connect(`sqlite:${join(folder, "flotilla.db")}`);
  await flotilla.tasks.stats();
});
afterAll(async () => {
  await flotilla.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("pauses and limits on the command line", () => {
  test("a name is paused and resumed, and so is everything", async () => {
    const paused = await run("pause", "mail", "--reason", "no\u001b[2J mail");
    expect(paused).toMatchObject({
      code: 0,
      stdout: expect.stringMatching(/^mail +paused \d+s ago by cli\/\S+ +no \[2J mail\n$/),
    });
    expect(await run("pause", "--json")).toMatchObject({
      code: 0,
      stdout: expect.stringContaining('{"paused":[{"name":"*"'),
    });
    expect((await run("resume")).stdout).toMatch(/^mail/);
    expect(await run("resume", "mail")).toMatchObject({ code: 0, stdout: "nothing is paused\n" });
    expect(await run("pause", "no spaces")).toMatchObject({ code: 2 });
  });

  test("a limit is set, shown with what runs and waits, and taken back", async () => {
    expect(await run("limits", "list")).toMatchObject({
      stdout: "no limits, and no tenants with tasks\n",
    });
    expect(await run("limits", "set", "tenant/acme", "5")).toMatchObject({
      code: 0,
      stdout: "5 of tenant/acme may run at once; 0 do\n",
    });
    await flotilla.enqueue("mail", 1, { tenant: "acme" });
    expect((await run("limits", "list")).stdout).toMatch(/tenant\/acme +5 +0 +1/);
    for (const bad of [
      ["tenant/acme", "0"],
      ["tenant/acme", "many"],
      ["acme", "5"],
    ]) {
      expect(await run("limits", "set", ...bad)).toMatchObject({ code: 2 });
    }
    expect(await run("limits", "unset", "tenant/acme")).toMatchObject({ code: 0 });
    expect(await flotilla.tasks.limits.get("tenant/acme")).toMatchObject({ limit: null });
  });

  test("a task says what holds it up", async () => {
    const { taskId } = await flotilla.enqueue("call", 1, { concurrencyKey: "ada" });
    await flotilla.tasks.limits.set("key/call/ada", 1);
    const database = await openStore(`sqlite:${join(folder, "flotilla.db")}`);
    await database.write([
      sql`insert into ${table("task")} (name, status, claimed_by, limited, concurrency_key)
        values ('call', 'claimed', 'pod', 1, 'key/call/ada')`,
    ]);
    await database.close();
    await flotilla.tasks.pause("call");
    const { stdout } = await run("tasks", "show", taskId);
    expect(stdout).toMatch(/why +"call" is paused by program since [^ ]+\n/);
    const listed = await run("tasks", "list", "--name", "call", "--status", "pending");
    expect(listed.stdout).toMatch(new RegExp(`${taskId} .* paused$`, "m"));
    expect(stdout).toMatch(/why +1 of 1 tasks of key\/call\/ada are running: [^ ]+ on pod\n/);
  });
});
