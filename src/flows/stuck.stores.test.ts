import { afterAll, afterEach, beforeEach, describe, expect, test } from "vitest";
import { dayMs } from "../base/durations.ts";
import { beat, markLeft } from "../pods/sql.ts";
import { closeStores } from "../tasks/contract/harness.ts";
import { storeKinds } from "../store/contract/kinds.ts";
import { sql, table } from "../store/sql.ts";
import { flow } from "./flow.ts";
import { openRuns, type RunsHarness, soon } from "./contract/harness.ts";

afterAll(closeStores);

const tasks = table("task");

describe.each(storeKinds)("stuck runs on $name", (kind) => {
  let runs: RunsHarness;
  beforeEach(async () => {
    runs = await openRuns(kind);
  });
  afterEach(() => runs.close());

  const order = flow("order", { version: 2, attempts: 1_000, backoff: soon })
    .to("charge", ({ input }) => {
      if (input === "refused") throw new Error("no credit");
    })
    .sleep("rest", ({ input }) => (input === "sleeps" ? 7 * dayMs : 0))
    .signal("approve")
    .end();
  const paused = flow("report", { version: 1 })
    .to("write", () => {})
    .end();

  const says = (podId: string, flows: Record<string, number>) =>
    runs.database.write([beat(podId, JSON.stringify({ names: Object.keys(flows), flows }), 0)]);
  /** As if all that was written to it were two days old. */
  const age = (runId: string) =>
    runs.database.write([
      sql`update ${tasks} set created_at = created_at - ${2 * dayMs}, run_at = run_at - ${2 * dayMs},
        advanced_at = advanced_at - ${2 * dayMs} where task_id = ${runId}`,
    ]);
  const kinds = async () =>
    (await runs.stuck()).map(({ why, at, version, runs: count }) => ({ why, at, version, count }));

  test("are those that have waited for long, but not those that have a time", async () => {
    await says("pod-1", { order: 2 });
    await runs.work("pod-1", [order]);
    const [one, two, asleep] = [
      await runs.start(order, 1),
      await runs.start(order, 2),
      await runs.start(order, "sleeps"),
    ];
    for (const { runId } of [one, two]) await runs.doing(runId, "waiting_for_signal");
    await runs.doing(asleep.runId, "sleeping");
    expect(await runs.stuck()).toEqual([]);
    await age(one.runId);
    // It sleeps until a time that hasn't come, however long ago it began to.
    await runs.database.write([
      sql`update ${tasks} set advanced_at = advanced_at - ${2 * dayMs} where task_id = ${asleep.runId}`,
    ]);
    const [stuck, ...others] = await runs.stuck();
    expect(others).toEqual([]);
    expect(stuck).toMatchObject({ why: "waiting", at: "approve", version: 2, runs: 1 });
    expect(stuck).toMatchObject({ flow: "order", runId: one.runId });
    await age(two.runId);
    expect(await kinds()).toEqual([{ why: "waiting", at: "approve", version: 2, count: 2 }]);
    expect((await runs.stuck())[0]!.runId).toBe(one.runId);
    expect(await runs.stuck({ waitingMs: 3 * dayMs })).toEqual([]);
  });

  test("are those that were tried again and again", async () => {
    await says("pod-1", { order: 2 });
    const worker = await runs.work("pod-1", [order]);
    const { runId } = await runs.start(order, "refused");
    await runs.queue.until("six attempts", async () => (await runs.view(runId)).attempt > 6);
    await runs.queue.outcome(worker.stop({ waitMs: 0 }));
    expect(await kinds()).toEqual([{ why: "retrying", at: "charge", version: 2, count: 1 }]);
    expect(await runs.stuck({ failures: 1_000 })).toEqual([]);
  });

  test("are those that were tried again and again, also while they are being tried", async () => {
    await says("pod-1", { slow: 1 });
    let isTrying: () => void = () => {};
    const trying = new Promise<void>((resolve) => (isTrying = resolve));
    let goOn: () => void = () => {};
    const slow = flow("slow", { version: 1, attempts: 1_000, backoff: soon })
      .to("ask", async ({ attempt }) => {
        if (attempt <= 6) throw new Error("nobody answers");
        isTrying();
        await new Promise<void>((resolve) => (goOn = resolve));
      })
      .end();
    await runs.work("pod-1", [slow]);
    const { runId } = await runs.start(slow, null);
    await runs.queue.outcome(trying);
    expect(await runs.view(runId)).toMatchObject({ doing: { type: "running" }, attempt: 7 });
    expect(await kinds()).toEqual([{ why: "retrying", at: "ask", version: 1, count: 1 }]);
    goOn();
    await runs.ended(runId);
    expect(await runs.stuck()).toEqual([]);
  });

  test("are those that no pod may take, for want of their version", async () => {
    await says("pod-1", { order: 2 });
    const worker = await runs.work("pod-1", [order]);
    const { runId } = await runs.start(order, 1);
    await runs.doing(runId, "waiting_for_signal");
    await runs.queue.outcome(worker.stop({ waitMs: 0 }));
    expect(await runs.view(runId)).toMatchObject({ version: 2, noWorker: false });

    await runs.database.write([markLeft("pod-1")]);
    await says("pod-2", { order: 1, report: 1 });
    expect(await runs.view(runId)).toMatchObject({ version: 2, noWorker: true });
    expect(await runs.queue.get(runId)).toMatchObject({ flowVersion: 2, noWorker: true });
    expect(await kinds()).toEqual([{ why: "no_worker", at: "approve", version: 2, count: 1 }]);

    // A run that no version has advanced may go to any version.
    const { runId: fresh } = await runs.start(order, 1);
    expect(await runs.view(fresh)).toMatchObject({ version: 0, noWorker: false });
    await says("pod-3", { order: 3 });
    expect(await runs.view(runId)).toMatchObject({ noWorker: false });
    expect(await kinds()).toEqual([]);
    for (const podId of ["pod-2", "pod-3"]) await runs.database.write([markLeft(podId)]);
    expect(await kinds()).toEqual([
      { why: "no_worker", at: null, version: 0, count: 1 },
      { why: "no_worker", at: "approve", version: 2, count: 1 },
    ]);
  });

  test("are those that were set aside, which can be listed", async () => {
    await says("pod-1", { order: 2 });
    await runs.work("pod-1", [order]);
    const { runId } = await runs.start(order, 1);
    await runs.doing(runId, "waiting_for_signal");
    await runs.database.write([sql`update ${tasks} set cursor = 'gone' where task_id = ${runId}`]);
    await runs.signal(runId, "approve");
    await runs.doing(runId, "set_aside");
    expect(await kinds()).toEqual([{ why: "set_aside", at: "gone", version: 2, count: 1 }]);
    await runs.start(order, 2);
    const { runs: listed } = await runs.list({ setAside: true });
    expect(listed.map((each) => each.runId)).toEqual([runId]);
    await runs.database.write([
      sql`update ${tasks} set cursor = 'approve' where task_id = ${runId}`,
    ]);
  });

  test("and one that is paused is shown as paused", async () => {
    await says("pod-1", { report: 1 });
    await runs.queue.pause("report");
    const { runId } = await runs.start(paused, 1);
    expect(await runs.view(runId)).toMatchObject({ paused: true, doing: { type: "ready" } });
    await runs.queue.resume("report");
    expect(await runs.view(runId)).toMatchObject({ paused: false });
  });

  test("a history comes whole, or page by page", async () => {
    await says("pod-1", { report: 1 });
    await runs.work("pod-1", [paused]);
    const { runId } = await runs.start(paused, 1);
    await runs.ended(runId);
    const whole = await runs.history(runId);
    expect(whole.map(({ type }) => type)).toEqual(["start", "complete", "finish"]);
    const first = await runs.history(runId, { limit: 2 });
    const second = await runs.history(runId, { limit: 2, after: first.at(-1)!.seq });
    expect([...first, ...second]).toEqual(whole);
  });
});
