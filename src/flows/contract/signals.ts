import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness } from "./harness.ts";
import { maxOpenSignals } from "../../tasks/sql/signals.ts";

const yes = z.object({ by: z.string() });

/** Continues once a signal allows it. */
export const asking = flow("asking", { version: 1 })
  .to("ask", () => ({ asked: true }))
  .signal("approval", { schema: yes })
  .to("act", ({ state }) => ({ done: `for ${state.approval.by}` }))
  .end();

/** What a run that gets signals is promised on every store. */
export function signalsContract(kind: StoreKind): void {
  describe(`signals on ${kind.name}`, () => {
    let harness: RunsHarness;
    beforeEach(async () => {
      harness = await openRuns(kind);
    });
    afterEach(() => harness.close());

    test("a run waits for its signal for as long as it takes, and goes on with its payload", async () => {
      await harness.work("pod-1", [asking]);
      const { runId } = await harness.start(asking, null);
      const waiting = await harness.doing(runId, "waiting_for_signal");
      expect(waiting).toMatchObject({ at: "approval", state: { asked: true }, attempt: 1 });
      expect(waiting.doing).toMatchObject({ name: "approval", untilMs: null });
      await harness.folds();
      await harness.signal(runId, "approval", { by: "ada" });
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { asked: true, approval: { by: "ada" }, done: "for ada" },
      });
      expect(await harness.signals(runId)).toEqual([]);
      expect(await harness.noted(runId)).toEqual([
        "start",
        "complete ask",
        "park approval",
        "complete approval",
        "complete act",
        "finish",
      ]);
    });

    test("one that comes before the run gets there is kept for it", async () => {
      const { runId } = await harness.start(asking, null);
      await harness.signal(runId, "approval", { by: "early" }, { id: "one" });
      expect(await harness.signals(runId)).toMatchObject([{ signalId: "one", name: "approval" }]);
      await harness.work("pod-1", [asking]);
      expect(await harness.ended(runId)).toMatchObject({ output: { done: "for early" } });
      expect(await harness.noted(runId)).not.toContain("park approval");
    });

    test("one that is sent again changes nothing of a run that goes on", async () => {
      const { runId } = await harness.start(asking, null);
      await harness.signal(runId, "approval", { by: "ada" }, { id: "one" });
      const before = await harness.queue.row(runId);
      await harness.signal(runId, "approval", { by: "ada" }, { id: "one" });
      expect(await harness.queue.row(runId)).toEqual(before);
      expect(await harness.signals(runId)).toHaveLength(1);
    });

    test("none in time fails the run, with the time that it began to wait", async () => {
      const impatient = flow("impatient", { version: 1 }).signal("word", { timeoutMs: 30 }).end();
      await harness.work("pod-1", [impatient]);
      const { runId } = await harness.start(impatient, null);
      const run = await harness.ended(runId);
      const { sinceMs, untilMs } = await harness.parkedFor(runId);
      expect(untilMs).toBe(sinceMs + 30);
      expect(run).toMatchObject({ status: "failed", error: { code: "timeout" } });
      expect(run.error?.message).toContain(`no signal "word" came within 30 ms`);
      expect(run.updatedAtMs).toBeGreaterThanOrEqual(untilMs);
      const errors = (await harness.history(runId)).filter(({ type }) => type === "error");
      expect(errors).toMatchObject([{ transition: "word", startedAtMs: sinceMs }]);
    });

    test("none in time gives the value that was declared for that", async () => {
      const relaxed = flow("relaxed", { version: 1 })
        .signal("word", { timeoutMs: 20, onTimeout: { value: { said: "nothing" } } })
        .to("after", ({ state }) => ({ heard: state.word }))
        .end();
      await harness.work("pod-1", [relaxed]);
      const { runId } = await harness.start(relaxed, null);
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { word: { said: "nothing" }, heard: { said: "nothing" } },
      });
    });

    test("one in time keeps a run from its timeout, also if another name comes first", async () => {
      const patient = flow("patient", { version: 1 })
        .signal("first", { timeoutMs: 600_000 })
        .signal("second", { timeoutMs: 600_000 })
        .end();
      await harness.work("pod-1", [patient]);
      const { runId } = await harness.start(patient, null);
      await harness.doing(runId, "waiting_for_signal");
      await harness.signal(runId, "second", 2);
      await harness.folds();
      expect(await harness.view(runId)).toMatchObject({ at: "first", status: "open" });
      await harness.signal(runId, "first", 1);
      expect(await harness.ended(runId)).toMatchObject({ output: { first: 1, second: 2 } });
    });

    test("one that the schema refuses is dropped and noted, and the run waits on as before", async () => {
      const strict = flow("strict", { version: 1 })
        .signal("approval", { schema: yes, timeoutMs: 600_000 })
        .end();
      await harness.work("pod-1", [strict]);
      const { runId } = await harness.start(strict, null);
      const before = await harness.doing(runId, "waiting_for_signal");
      await harness.signal(runId, "approval", { by: 5 }, { id: "wrong" });
      await harness.queue.until(
        "the refusal",
        async () => (await harness.signals(runId)).length === 0,
      );
      const after = await harness.doing(runId, "waiting_for_signal");
      // Its timeout doesn't begin anew.
      expect(after.doing).toEqual(before.doing);
      const parks = (await harness.history(runId)).filter(({ type }) => type === "park");
      expect(parks).toHaveLength(2);
      expect(parks[1]!.detail).toMatchObject({ message: expect.stringContaining("by") });
      await harness.signal(runId, "approval", { by: "ada" });
      expect(await harness.ended(runId)).toMatchObject({ output: { approval: { by: "ada" } } });
    });

    test("behind one that is refused, the next is read at once", async () => {
      const { runId } = await harness.start(asking, null);
      await harness.signal(runId, "approval", "what?");
      await harness.signal(runId, "approval", { by: "ada" });
      await harness.work("pod-1", [asking]);
      expect(await harness.ended(runId)).toMatchObject({ output: { done: "for ada" } });
    });

    test("the same id twice is one, before it is used and after", async () => {
      const twice = flow("twice", { version: 1 }).signal("a").signal("b").end();
      const { runId } = await harness.start(twice, null);
      await harness.signal(runId, "a", 1, { id: "one" });
      await harness.signal(runId, "a", 2, { id: "one" });
      expect(await harness.signals(runId)).toHaveLength(1);
      await harness.work("pod-1", [twice]);
      await harness.queue.until(
        "the second wait",
        async () => (await harness.view(runId)).at === "b",
      );
      await harness.doing(runId, "waiting_for_signal");
      await harness.signal(runId, "a", 3, { id: "one" });
      await harness.signal(runId, "b", 4, { id: "one" });
      expect(await harness.signals(runId)).toEqual([]);
      await harness.signal(runId, "b", 5, { id: "two" });
      expect(await harness.ended(runId)).toMatchObject({ output: { a: 1, b: 5 } });
      // A sender that isn't sure whether it was stored may send it again, even now.
      await harness.signal(runId, "b", 5, { id: "two" });
    });

    test("of several of a name the first is used, once, and the others stay", async () => {
      const { runId } = await harness.start(asking, null);
      // Their ids say nothing about their order.
      const sent = [
        ["first", "c"],
        ["second", "a"],
        ["third", "b"],
      ] as const;
      for (const [by, id] of sent) await harness.signal(runId, "approval", { by }, { id });
      await harness.work("pod-1", [asking]);
      expect(await harness.ended(runId)).toMatchObject({ output: { done: "for first" } });
      expect(await harness.signals(runId)).toMatchObject([{ signalId: "a" }, { signalId: "b" }]);
    });

    test("a run that has ended, or a missing one, takes no signals", async () => {
      await harness.work("pod-1", [asking]);
      const { runId } = await harness.start(asking, null);
      await harness.signal(runId, "approval", { by: "ada" });
      await harness.ended(runId);
      await expect(harness.signal(runId, "approval", { by: "late" })).rejects.toMatchObject({
        code: "conflict",
      });
      await expect(harness.signal("nobody", "approval", 1)).rejects.toMatchObject({
        code: "not_found",
      });
      const { taskId } = await harness.queue.enqueue("plain", 1);
      await expect(harness.signal(taskId, "approval", 1)).rejects.toMatchObject({
        code: "not_found",
      });
      expect(await harness.signals(runId)).toEqual([]);
    });

    test("a run with too many unused signals takes no more", async () => {
      const { runId } = await harness.start(asking, null);
      const many = Array.from({ length: maxOpenSignals - 1 }, (_, at) => at + 1);
      const signals = table("task_signal");
      for (let at = 0; at < many.length; at += 111) {
        await harness.database.write(
          many.slice(at, at + 111).map(
            (seq) => sql`insert into ${signals} (task_id, signal_id, seq, name, payload)
              values (${runId}, ${`${seq}`}, ${seq}, 'approval', '{"by":"many"}')`,
          ),
        );
      }
      await harness.signal(runId, "approval", { by: "last" }, { id: "last" });
      await expect(harness.signal(runId, "approval", { by: "more" })).rejects.toMatchObject({
        code: "overloaded",
      });
      // What is there already isn't more.
      await harness.signal(runId, "approval", { by: "last" }, { id: "last" });
      await harness.work("pod-1", [asking]);
      expect(await harness.ended(runId)).toMatchObject({ output: { done: "for many" } });
    });

    test("one that is sent while pods are away is read by the pod that comes, after one has died waiting", async () => {
      const { runId } = await harness.start(asking, null);
      const first = await harness.work("pod-1", [asking]);
      await harness.doing(runId, "waiting_for_signal");
      await harness.queue.outcome(first.stop({ waitMs: 0 }));
      await harness.signal(runId, "approval", { by: "ada" });
      await harness.die(runId);
      await harness.work("pod-2", [asking]);
      expect(await harness.ended(runId)).toMatchObject({ output: { done: "for ada" } });
      const pods = (await harness.history(runId)).map(({ podId }) => podId);
      expect(new Set(pods)).toEqual(new Set(["pod-1", "mortal", "pod-2"]));
    });
  });
}
