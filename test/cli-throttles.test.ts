import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { beat } from "../src/pods/sql.ts";
import type { Database } from "../src/store/database.ts";
import { migrate } from "../src/store/migrate.ts";
import { openStore } from "../src/store/open.ts";
import { sql, table } from "../src/store/sql.ts";
import { noCounts } from "../src/throttles/learning/sample.ts";
import { storeThrottle } from "../src/throttles/contract/shares-stored.ts";
import { run as runIn, start } from "./command.ts";

let folder: string;
let database: Database;
const run = (...args: string[]) => runIn(["throttles", ...args], { cwd: folder });
/** Pods that go on reporting: what one has said counts for seconds, in which a command may not come so far. */
const storeReported = async (given: Parameters<typeof storeThrottle>[1]): Promise<void> => {
  await storeThrottle(database, given);
  await database.write([sql`update ${table("throttle_report")} set at = at + 3600000`]);
};

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-"));
  database = await openStore(`sqlite:${join(folder, "flotilla.db")}`);
  await migrate(database);
});
afterAll(async () => {
  await database.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("throttles on the command line", () => {
  test("are listed with their limits and what goes on, and shown with their pods", async () => {
    expect(await run()).toMatchObject({ code: 0, stdout: expect.stringMatching(/^no throttles/) });
    await storeReported({
      name: "openai",
      key: "gpt",
      bound: 20,
      stats: { outcomes: { ...noCounts, success: 1_990, throttled: 10 }, p95Ms: 812 },
      pods: {
        a: { share: 12, inFlight: 11, waiting: 3 },
        b: { share: 8, inFlight: 4, waiting: 0 },
      },
    });
    await storeThrottle(database, {
      name: "down\u001b[2J",
      key: "",
      bound: 4,
      constraints: { breaker: "open" },
    });
    const { code, stdout } = await run();
    expect(code).toBe(0);
    expect(stdout).toMatch(/openai +gpt +20 +15 +████████░░ +3 +812 ms +2,000 +0\.5 % +2\n/);
    expect(stdout).toMatch(/down \[2J .* open: no calls\n/);
    const shown = (await run("show", "openai", "--key", "gpt")).stdout;
    expect(shown).toMatch(/limit +20\n/);
    expect(shown).toMatch(/\na +12 +11 +3 +\d+s ago\n/);
    expect(await run("show", "openai")).toMatchObject({ code: 4 });
    const { throttle } = JSON.parse((await run("show", "openai", "--key", "gpt", "--json")).stdout);
    expect(throttle).toMatchObject({ bound: 20, pods: [{ podId: "a" }, { podId: "b" }] });
  });

  test("are pinned and unpinned", async () => {
    await storeThrottle(database, { name: "mail", key: "", bound: 20 });
    expect(await run("pin", "mail", "5")).toMatchObject({
      code: 0,
      stdout: "mail is pinned: 5 calls at once in the whole fleet\n",
    });
    expect((await run()).stdout).toMatch(/mail +5 .* pinned\n/);
    expect(await run("unpin", "mail")).toMatchObject({
      code: 0,
      stdout: "mail is learned again\n",
    });
    await storeThrottle(database, { name: "sms", key: "", bound: 3, options: { pinned: 3 } });
    expect((await run()).stdout).toMatch(/sms +3 .* pinned\n/);
    expect((await run("unpin", "sms")).stdout).toBe("sms is held at 3 by its options\n");
    expect((await run("pin", "mail", "many")).code).toBe(2);
    expect((await run("pin", "mail", "-1")).code).toBe(2);
    expect((await run("pin", "nothing", "5")).code).toBe(4);
  });

  test("are named by the tasks that they hold up", async () => {
    const name = "summaries";
    await storeReported({
      name,
      key: "",
      bound: 4,
      stats: { meanMs: 1_000 },
      pods: { a: { share: 4, inFlight: 4, waiting: 2 } },
    });
    const metadata = JSON.stringify({ names: ["sum"], throttles: { sum: { name, key: "" } } });
    await database.write([
      beat("pod", metadata, 0),
      ...Array.from(
        { length: 239 },
        (_, at) =>
          sql`insert into ${table("task")} (task_id, name, created_at) values (${`t${at}`}, 'sum', ${at})`,
      ),
      sql`insert into ${table("task")} (task_id, name) values ('waits', 'sum')`,
    ]);
    const shown = await runIn(["tasks", "show", "waits"], { cwd: folder });
    expect(shown.stdout).toMatch(
      /why +throttled: 4 of 4 calls of summaries are in flight, 240 wait, 239 ahead of it, for about 60 s\n/,
    );
    const listed = await runIn(["tasks", "list"], { cwd: folder });
    expect(listed.stdout).toMatch(/^waits .* throttled by summaries$/m);
  });

  test("are watched, look after look, until that is interrupted", async () => {
    const watched = start(["throttles", "--watch", "--json"], { cwd: folder });
    const pages = () => watched.output.stdout.trim().split("\n").length;
    await vi.waitFor(() => expect(pages()).toBeGreaterThan(1), { timeout: 90_000 });
    watched.child.kill("SIGINT");
    expect(await watched.ended).toMatchObject({ code: 0, stderr: "" });
  });
});
