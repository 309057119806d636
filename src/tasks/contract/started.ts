import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { snooze } from "../../base/errors.ts";
import { emptyLiveness, observe } from "../../pods/liveness.ts";
import { encodePulse } from "../../pods/pulse.ts";
import { beat, readPods, toPodSeen } from "../../pods/sql.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { createLeader } from "../leader/recover.ts";
import { task } from "../task.ts";
import type { TaskEvent } from "../tasks.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { heldOpen } from "./worker.ts";

/** What the times promise at which attempts began, on every store. */
export function startedContract(kind: StoreKind): void {
  describe(`when an attempt began, on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const startIn = ({ detail }: TaskEvent) => (detail as { startedAtMs?: number }).startedAtMs;
    const pulse = (taskId: string, startedAtMs: number) =>
      encodePulse({
        claimed: 1,
        ended: {},
        chunks: 0,
        lagMs: 0,
        memoryBytes: null,
        held: 1,
        leadsSinceMs: null,
        throttles: [],
        running: [{ taskId, startedAtMs }],
        logs: [],
      });

    test("is stored with its end, and in the event that it leaves", async () => {
      const { handler, attempts } = heldOpen("a", { attempts: 2, backoff: { baseMs: 0 } });
      await queue.work("pod-1", [handler]);
      const { taskId } = await queue.enqueue("a", 1);
      expect(await queue.get(taskId)).toMatchObject({ startedAtMs: null });
      await queue.until("the first attempt", () => attempts[0]);
      const claimedAtMs = Number((await queue.row(taskId))["last_update"]);
      await queue.clock.advance(50);
      attempts[0]!.fail(new Error("once"));
      await queue.until("the second attempt", () => attempts[1]);
      const [retry] = await queue.events(taskId);
      expect(retry).toMatchObject({ type: "retry", detail: { message: "once" } });
      expect(startIn(retry!)).toBeGreaterThanOrEqual(claimedAtMs);
      expect(startIn(retry!)).toBeLessThanOrEqual(retry!.atMs);
      // The row has the start of the first attempt, and the second one runs.
      expect(Number((await queue.row(taskId))["started_at"])).toBe(startIn(retry!));
      expect(await queue.get(taskId)).toMatchObject({ status: "claimed", startedAtMs: null });
      attempts[1]!.finish("ok");
      const { startedAtMs, updatedAtMs } = await queue.ended(taskId);
      expect(startedAtMs).toBeGreaterThanOrEqual(startIn(retry!)!);
      expect(startedAtMs).toBeLessThanOrEqual(updatedAtMs);
    });

    test("is in the events of snoozes, cancels and failures", async () => {
      const { handler, attempts } = heldOpen("a", { attempts: 1 });
      const sleepy = task("sleepy", { attempts: 1 }, ({ snoozes }) => {
        if (snoozes === 0) throw snooze(0, "not yet");
        throw new Error("broken");
      });
      await queue.work("pod-1", [handler, sleepy]);
      const failing = await queue.enqueue(sleepy, null);
      const failed = await queue.ended(failing.taskId);
      const events = await queue.events(failing.taskId);
      expect(events.map(({ type }) => type)).toEqual(["snoozed", "failed"]);
      expect(events.map(startIn)).toEqual([expect.any(Number), failed.startedAtMs]);
      const { taskId } = await queue.enqueue("a", 1);
      await queue.until("the attempt", () => attempts[0]);
      await queue.cancel(taskId);
      await queue.until("its signal", () => attempts[0]!.context.signal.aborted, { stepMs: 100 });
      attempts[0]!.fail(new Error("stopped"));
      const cancelled = await queue.ended(taskId);
      expect(await queue.events(taskId)).toMatchObject([
        { type: "cancel_requested" },
        { type: "cancelled", detail: { startedAtMs: cancelled.startedAtMs } },
      ]);
    });

    test("isn't there where the handler wasn't called", async () => {
      const broken = task("broken", { attempts: 1 }, () => {
        throw new Error("no");
      });
      const after = task("after", { attempts: 1 }, () => null);
      await queue.work("pod-1", [broken, after]);
      const first = await queue.enqueue(broken, null);
      const second = await queue.enqueue(after, null, { after: [first.taskId] });
      expect(await queue.ended(second.taskId)).toMatchObject({
        status: "failed",
        error: { code: "dependency_failed" },
        startedAtMs: null,
      });
    });

    test("is told with how long the task waited since it was due, and how long it ran", async () => {
      const { handler, attempts } = heldOpen("a");
      const { taskId } = await queue.enqueue("a", 1);
      await queue.pass(3_000);
      await queue.work("pod-1", [handler]);
      await queue.until("the attempt", () => attempts[0]);
      await queue.clock.advance(2_000);
      attempts[0]!.finish("ok");
      await queue.ended(taskId);
      const [ended] = queue.told.filter((event) => event.type === "ended");
      expect(ended).toMatchObject({ name: "a", outcome: "completed" });
      const { waitedMs, ranMs } = ended as { waitedMs: number; ranMs: number };
      expect(waitedMs).toBeGreaterThanOrEqual(3_000);
      expect(waitedMs).toBeLessThan(20_000);
      expect(ranMs).toBeGreaterThanOrEqual(2_000);
      expect(ranMs).toBeLessThan(20_000);
    });

    test("is known of a running task from its pod's pulse", async () => {
      await queue.beat("pod-1");
      const { taskId } = await queue.enqueue("a", 1);
      await queue.claim("pod-1", ["a"]);
      const startedAtMs = Number((await queue.row(taskId))["last_update"]) + 7;
      const say = (atMs: number) =>
        queue.database.write([beat("pod-1", "{}", 0, { pulse: pulse(taskId, atMs) })]);
      await say(startedAtMs);
      expect(await queue.get(taskId)).toMatchObject({ status: "claimed", startedAtMs });
      // From before this claim: the pod has run the task before.
      await say(startedAtMs - 1_000);
      expect(await queue.get(taskId)).toMatchObject({ status: "claimed", startedAtMs: null });
    });

    test("is in the event of a pod's death, as far as the pod had said it", async () => {
      await queue.beat("pod-1", "pod-2");
      const said = await queue.enqueue("a", 1);
      const unsaid = await queue.enqueue("a", 2);
      await queue.claim("pod-2", ["a"], 2);
      const claimedAtMs = Number((await queue.row(said.taskId))["last_update"]);
      await queue.database.write([
        beat("pod-2", "{}", 0, { pulse: pulse(said.taskId, claimedAtMs + 7) }),
      ]);
      const limits = { heartbeatMs: 1_000, deadAfterMs: 5_000, gapMs: 3_000 };
      let liveness = emptyLiveness;
      for (let second = 0; second < 7; second++) {
        await queue.clock.advance(1_000);
        await queue.beat("pod-1");
        const pods = (await queue.database.read(readPods())).map(toPodSeen);
        liveness = observe(liveness, { atMs: queue.clock.monotonic(), pods }, limits);
      }
      const { database, ids } = queue;
      await createLeader({ podId: "pod-1", database, limits, ids }).pass(liveness);
      expect(await queue.events(said.taskId)).toMatchObject([
        { type: "pod_died", detail: { claimedAtMs, startedAtMs: claimedAtMs + 7 } },
      ]);
      const [died] = await queue.events(unsaid.taskId);
      expect(died!.detail).toEqual({ claimedAtMs });
    });
  });
}
