import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../src/base/log.ts";
import { task } from "../src/tasks/task.ts";
import { startPod } from "../src/runtime/start-pod.ts";
import { temporaryFile } from "../src/store/contract/kinds.ts";
import { part } from "./parts.ts";

const page = readFileSync(new URL("../docs/tasks-reference.md", import.meta.url), "utf8");
const ofTask = /```sql\n(insert into flotilla_task [^;]+;)\n```/.exec(page)![1]!;
const ofSchedule = /`(insert into flotilla_schedule [^`]+)`/.exec(page)![1]!;
/** The page says to wait for a pod that writes. By itself the program gives up at once. */
const wait = /`(\.timeout \d+)`/.exec(page)![1]!;
const sqlite3 = (path: string, text: string) =>
  execFileSync(part("sqlite"), ["-cmd", wait, path, text], { encoding: "utf8" }).trim();

const summarize = task("summarize", {}, ({ input }: { input: { url: string } }) => input.url);
const settings = { use: [summarize], log: silentLogger, heartbeatMs: 200, pollMs: 50 };

let place: ReturnType<typeof temporaryFile>;
beforeEach(() => {
  place = temporaryFile();
});
afterEach(() => place.remove());

describe("the sqlite3 program", () => {
  test("inserts a task by the statement of docs/tasks-reference.md, and a pod runs it", async () => {
    await using pod = await startPod({ ...settings, store: `sqlite:${place.path}` });
    const fromMs = Date.now();
    const taskId = sqlite3(place.path, `${ofTask.replace(/;$/, "")} returning task_id`);
    const toMs = Date.now();

    expect(await pod.waitFor(taskId)).toBe("https://example.com");
    const { createdAtMs, runAtMs } = (await pod.tasks.get(taskId))!;
    expect(createdAtMs).toBeGreaterThanOrEqual(fromMs);
    expect(createdAtMs).toBeLessThanOrEqual(toMs);
    expect(runAtMs).toBe(createdAtMs);
    // A UUIDv7 says when it was made.
    expect(Number.parseInt(taskId.replace("-", "").slice(0, 12), 16)).toBe(createdAtMs);
  });

  test("inserts a schedule by the statement of docs/tasks-reference.md, and it gets its next time", async () => {
    await using pod = await startPod({ ...settings, store: `sqlite:${place.path}` });
    sqlite3(place.path, ofSchedule);
    await expect
      .poll(async () => (await pod.schedules.get("nightly"))?.nextAtMs)
      .toBeGreaterThan(Date.now());
  });
});
