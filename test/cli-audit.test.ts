import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { hostname, tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { connect, type Flotilla } from "../src/runtime/connect.ts";
import { run as runIn, type Running, start } from "./command.ts";

const key = "a-key-of-16-chars-or-more";
const me = `cli/${userInfo().username}`;
let folder: string;
let flotilla: Flotilla;
let server: Running;
let url: string;
const run = (...args: string[]) => runIn(args, { cwd: folder });
const onServer = (...args: string[]) =>
  runIn([...args, "--url", url], { cwd: folder, env: { FLOTILLA_API_KEY: key } });

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cli-audit-"));
  const keys = JSON.stringify([{ key, name: "ops", admin: true }]);
  writeFileSync(
    join(folder, "flotilla.config.mjs"),
    `export default { server: { apiKeys: ${keys} } };`,
  );
  flotilla = connect(`sqlite:${join(folder, "flotilla.db")}`);
  await flotilla.tasks.stats();
  server = start(["serve", "--port", "0"], { cwd: folder });
  url = await vi.waitUntil(() => /listens on (\S+)/.exec(server.output.stdout)?.[1], {
    timeout: 90_000,
  });
});
afterAll(async () => {
  server.child.kill("SIGKILL");
  await server.ended;
  await flotilla.close();
  rmSync(folder, { recursive: true, force: true });
});

describe("the audit on the command line", () => {
  test("says who did what, on the store and through a server alike", async () => {
    expect((await run("audit")).stdout).toBe("no entries\n");
    const { taskId } = await flotilla.enqueue("mail", { card: "canary-secret" });
    expect(await run("tasks", "cancel", taskId)).toMatchObject({ code: 0 });
    expect(await onServer("pause", "mail", "--reason", "repairs\u001b[2J")).toMatchObject({
      code: 0,
    });
    await flotilla.tasks.resume("mail");

    const near = await run("audit", "--json");
    expect(near).toMatchObject({ code: 0 });
    const { entries } = JSON.parse(near.stdout) as { entries: Record<string, unknown>[] };
    expect(entries).toMatchObject([
      { action: "names.resume", actor: "program", subject: "mail" },
      {
        action: "names.pause",
        actor: "key/ops",
        address: "127.0.0.1",
        reason: expect.stringContaining("repairs"),
      },
      { action: "tasks.cancel", actor: me, subject: taskId, address: hostname() },
    ]);
    const far = await onServer("audit", "--json");
    expect(JSON.parse(far.stdout)).toEqual(JSON.parse(near.stdout));
    expect((await onServer("audit")).stdout).toBe((await run("audit")).stdout);
    expect(near.stdout).not.toContain("canary-secret");
  });

  test("is filtered, paged, and refuses a time that is none", async () => {
    await flotilla.tasks.limits.set("tenant/acme", 3);
    const { stdout } = await run("audit", "--action", "limits.set");
    expect(stdout).toMatch(
      /program +limits\.set +tenant\/acme +\{"limit":null\} → \{"limit":3\}\n$/,
    );
    expect((await run("audit", "--subject", "tenant/acme", "--json")).stdout).toContain(
      "limits.set",
    );
    expect((await run("audit", "--actor", "key/none")).stdout).toBe("no entries\n");
    expect((await run("audit", "--until", "2001-01-01")).stdout).toBe("no entries\n");
    expect((await run("audit", "--limit", "1")).stdout).toMatch(/more: --cursor \d+\./);
    expect(await run("audit", "--since", "yesterday")).toMatchObject({ code: 2 });
  });

  test("is followed, with each new entry once", async () => {
    const following = start(["audit", "--follow", "--json", "--action", "names.pause"], {
      cwd: folder,
    });
    const seen = () =>
      following.output.stdout
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => (JSON.parse(line) as { subject: string }).subject);
    for (const name of ["one", "two"]) {
      await flotilla.tasks.pause(name);
      await vi.waitUntil(() => seen().includes(name), { timeout: 90_000 });
    }
    following.child.kill("SIGINT");
    await following.ended;
    expect(seen().filter((name) => name === "one" || name === "two")).toEqual(["one", "two"]);
  });
});
