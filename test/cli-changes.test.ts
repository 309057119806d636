import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import type { RecordedChange } from "../src/changes/change.ts";
import type { ChangePage } from "../src/changes/changes.ts";
import { startTestServer, type TestServer } from "../src/server/contract/test-server.ts";
import { run as runIn, start } from "./command.ts";

let server: TestServer;
let folder: string;
const onStore = (...args: string[]) => runIn([...args, "--store", server.path], { cwd: folder });
const onServer = (...args: string[]) => runIn([...args, "--url", server.url], { cwd: folder });

beforeAll(async () => {
  server = await startTestServer();
  folder = dirname(server.path);
});
afterAll(() => server[Symbol.asyncDispose]());

describe("changes on the command line", () => {
  test("are recorded once a migration has read it in a config, and shown alike by store and server", async () => {
    expect(await onStore("changes")).toMatchObject({
      code: 4,
      stderr: expect.stringContaining("set `changes: { keepMs }`"),
    });
    const config = join(folder, "recording.config.mjs");
    writeFileSync(config, "export default { changes: { keepMs: 3_600_000 } };");
    expect(await onStore("migrate", "--config", config)).toMatchObject({ code: 0 });
    const { taskId } = await server.flotilla.enqueue("mail", { card: "canary-secret" });
    await server.flotilla.tasks.cancel(taskId);
    const near = await onStore("changes", "--json");
    const page = JSON.parse(near.stdout) as ChangePage;
    expect(page.changes).toMatchObject([
      { kind: "task", id: taskId, name: "mail", change: "created" },
      { kind: "task", id: taskId, name: "mail", change: "cancelled", status: "cancelled" },
    ]);
    expect(near.stdout).not.toContain("canary-secret");
    expect((await onServer("changes", "--json")).stdout).toBe(near.stdout);
    expect((await onServer("changes", "--limit", "1")).stdout).toContain(
      `more: --after ${page.changes[0]!.cursor}`,
    );
    expect((await onServer("changes", "--kind", "run")).stdout).toBe("no changes\n");
    expect(await onStore("changes", "--after", "x")).toMatchObject({ code: 2 });
  });

  test("are followed, and go on after the last cursor when the reader was killed", async () => {
    const follow = (after: string) => {
      const running = start(
        ["changes", "--follow", "--json", "--after", after, "--url", server.url],
        { cwd: folder },
      );
      const seen = () =>
        running.output.stdout
          .split("\n")
          .slice(0, -1)
          .map((line) => JSON.parse(line) as RecordedChange);
      return { ...running, seen };
    };
    const { cursor } = await server.flotilla.changes.page({ after: "now" });
    const first = await server.flotilla.enqueue("mail", 1);
    const killed = follow(cursor);
    await vi.waitUntil(() => killed.seen().length === 1, { timeout: 90_000 });
    killed.child.kill("SIGKILL");
    await killed.ended;
    const second = await server.flotilla.enqueue("mail", 2);
    const again = follow(killed.seen()[0]!.cursor);
    await vi.waitUntil(() => again.seen().length === 1, { timeout: 90_000 });
    again.child.kill("SIGINT");
    await again.ended;
    expect([...killed.seen(), ...again.seen()].map(({ id }) => id)).toEqual([
      first.taskId,
      second.taskId,
    ]);
  });
});
