import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsUnderTest } from "./second-harness.ts";
import { signalsMost } from "../sql.ts";

const yes = z.object({ by: z.string() });

/** Goes on when somebody has said that it may. */
export const asking = flow("asking", { version: 1 })
  .to("ask", () => ({ asked: true }))
  .signal("approval", { schema: yes })
  .to("act", ({ state }) => ({ done: `for ${state.approval.by}` }))
  .end();

/** What a run that is told something from outside is promised on every store. */
export function signalsContract(kind: StoreKind): void {
  describe(`signals on ${kind.name}`, () => {
    let scene: RunsUnderTest;
    beforeEach(async () => {
      scene = await openRuns(kind);
    });
    afterEach(() => scene.close());

    test("a run waits for its signal for as long as it takes, and goes on with what it said", async () => {
      await scene.work("pod-1", [asking]);
      const { runId } = await scene.start(asking, null);
      const waiting = await scene.doing(runId, "waiting_for_signal");
      expect(waiting).toMatchObject({ at: "approval", state: { asked: true }, attempt: 1 });
      expect(waiting.doing).toMatchObject({ name: "approval", untilMs: null });
      await scene.folds();
      await scene.signal(runId, "approval", { by: "ada" });
      expect(await scene.ended(runId)).toMatchObject({
        status: "completed",
        output: { asked: true, approval: { by: "ada" }, done: "for ada" },
      });
      expect(await scene.signals(runId)).toEqual([]);
      expect(await scene.noted(runId)).toEqual([
        "start",
        "complete ask",
        "park approval",
        "complete approval",
        "complete act",
        "finish",
      ]);
    });

    test("one that comes before the run gets there is kept for it", async () => {
      const { runId } = await scene.start(asking, null);
      await scene.signal(runId, "approval", { by: "early" }, { id: "one" });
      expect(await scene.signals(runId)).toMatchObject([{ signalId: "one", name: "approval" }]);
      await scene.work("pod-1", [asking]);
      expect(await scene.ended(runId)).toMatchObject({ output: { done: "for early" } });
      expect(await scene.noted(runId)).not.toContain("park approval");
    });

    test("one that is sent again changes nothing of a run that goes on", async () => {
      const { runId } = await scene.start(asking, null);
      await scene.signal(runId, "approval", { by: "ada" }, { id: "one" });
      const before = await scene.queue.row(runId);
      await scene.signal(runId, "approval", { by: "ada" }, { id: "one" });
      expect(await scene.queue.row(runId)).toEqual(before);
      expect(await scene.signals(runId)).toHaveLength(1);
    });

    test("none in time fails the run, with the time that it began to wait", async () => {
      const impatient = flow("impatient", { version: 1 }).signal("word", { timeoutMs: 30 }).end();
      await scene.work("pod-1", [impatient]);
      const { runId } = await scene.start(impatient, null);
      const run = await scene.ended(runId);
      const { sinceMs, untilMs } = await scene.parkedFor(runId);
      expect(untilMs).toBe(sinceMs + 30);
      expect(run).toMatchObject({ status: "failed", error: { code: "timeout" } });
      expect(run.error?.message).toContain(`no signal "word" came within 30 ms`);
      expect(run.updatedAtMs).toBeGreaterThanOrEqual(untilMs);
      const errors = (await scene.history(runId)).filter(({ type }) => type === "error");
      expect(errors).toMatchObject([{ transition: "word", startedAtMs: sinceMs }]);
    });

    test("none in time gives the value that was declared for that", async () => {
      const relaxed = flow("relaxed", { version: 1 })
        .signal("word", { timeoutMs: 20, onTimeout: { value: { said: "nothing" } } })
        .to("after", ({ state }) => ({ heard: state.word }))
        .end();
      await scene.work("pod-1", [relaxed]);
      const { runId } = await scene.start(relaxed, null);
      expect(await scene.ended(runId)).toMatchObject({
        status: "completed",
        output: { word: { said: "nothing" }, heard: { said: "nothing" } },
      });
    });

    test("one in time keeps a run from its timeout, also if another name is told first", async () => {
      const patient = flow("patient", { version: 1 })
        .signal("first", { timeoutMs: 600_000 })
        .signal("second", { timeoutMs: 600_000 })
        .end();
      await scene.work("pod-1", [patient]);
      const { runId } = await scene.start(patient, null);
      await scene.doing(runId, "waiting_for_signal");
      await scene.signal(runId, "second", 2);
      await scene.folds();
      expect(await scene.view(runId)).toMatchObject({ at: "first", status: "open" });
      await scene.signal(runId, "first", 1);
      expect(await scene.ended(runId)).toMatchObject({ output: { first: 1, second: 2 } });
    });

    test("one that the schema refuses is dropped and noted, and the run waits on as before", async () => {
      const strict = flow("strict", { version: 1 })
        .signal("approval", { schema: yes, timeoutMs: 600_000 })
        .end();
      await scene.work("pod-1", [strict]);
      const { runId } = await scene.start(strict, null);
      const before = await scene.doing(runId, "waiting_for_signal");
      await scene.signal(runId, "approval", { by: 5 }, { id: "wrong" });
      await scene.queue.until("the refusal", async () => (await scene.signals(runId)).length === 0);
      const after = await scene.doing(runId, "waiting_for_signal");
      // Its timeout doesn't begin anew.
      expect(after.doing).toEqual(before.doing);
      const parks = (await scene.history(runId)).filter(({ type }) => type === "park");
      expect(parks).toHaveLength(2);
      expect(parks[1]!.detail).toMatchObject({ message: expect.stringContaining("by") });
      await scene.signal(runId, "approval", { by: "ada" });
      expect(await scene.ended(runId)).toMatchObject({ output: { approval: { by: "ada" } } });
    });

    test("behind one that is refused, the next is looked at at once", async () => {
      const { runId } = await scene.start(asking, null);
      await scene.signal(runId, "approval", "what?");
      await scene.signal(runId, "approval", { by: "ada" });
      await scene.work("pod-1", [asking]);
      expect(await scene.ended(runId)).toMatchObject({ output: { done: "for ada" } });
    });

    test("the same id twice is one, before it is used and after", async () => {
      const twice = flow("twice", { version: 1 }).signal("a").signal("b").end();
      const { runId } = await scene.start(twice, null);
      await scene.signal(runId, "a", 1, { id: "one" });
      await scene.signal(runId, "a", 2, { id: "one" });
      expect(await scene.signals(runId)).toHaveLength(1);
      await scene.work("pod-1", [twice]);
      await scene.queue.until("the second wait", async () => (await scene.view(runId)).at === "b");
      await scene.doing(runId, "waiting_for_signal");
      await scene.signal(runId, "a", 3, { id: "one" });
      await scene.signal(runId, "b", 4, { id: "one" });
      expect(await scene.signals(runId)).toEqual([]);
      await scene.signal(runId, "b", 5, { id: "two" });
      expect(await scene.ended(runId)).toMatchObject({ output: { a: 1, b: 5 } });
      // Whoever isn't sure that it was stored may send it again, even now.
      await scene.signal(runId, "b", 5, { id: "two" });
    });

    test("of several of a name the first is used, once, and the others stay", async () => {
      const { runId } = await scene.start(asking, null);
      // Their ids say nothing about their order.
      const sent = [
        ["first", "c"],
        ["second", "a"],
        ["third", "b"],
      ] as const;
      for (const [by, id] of sent) await scene.signal(runId, "approval", { by }, { id });
      await scene.work("pod-1", [asking]);
      expect(await scene.ended(runId)).toMatchObject({ output: { done: "for first" } });
      expect(await scene.signals(runId)).toMatchObject([{ signalId: "a" }, { signalId: "b" }]);
    });

    test("nobody can say anything to a run that has ended, or to none", async () => {
      await scene.work("pod-1", [asking]);
      const { runId } = await scene.start(asking, null);
      await scene.signal(runId, "approval", { by: "ada" });
      await scene.ended(runId);
      await expect(scene.signal(runId, "approval", { by: "late" })).rejects.toMatchObject({
        code: "conflict",
      });
      await expect(scene.signal("nobody", "approval", 1)).rejects.toMatchObject({
        code: "not_found",
      });
      const { taskId } = await scene.queue.enqueue("plain", 1);
      await expect(scene.signal(taskId, "approval", 1)).rejects.toMatchObject({
        code: "not_found",
      });
      expect(await scene.signals(runId)).toEqual([]);
    });

    test("a run that was told too much and hasn't used it is told no more", async () => {
      const { runId } = await scene.start(asking, null);
      const many = Array.from({ length: signalsMost - 1 }, (_, at) => at + 1);
      const signals = table("task_signal");
      for (let at = 0; at < many.length; at += 111) {
        await scene.database.write(
          many.slice(at, at + 111).map(
            (seq) => sql`insert into ${signals} (task_id, signal_id, seq, name, payload)
              values (${runId}, ${`${seq}`}, ${seq}, 'approval', '{"by":"many"}')`,
          ),
        );
      }
      await scene.signal(runId, "approval", { by: "last" }, { id: "last" });
      await expect(scene.signal(runId, "approval", { by: "more" })).rejects.toMatchObject({
        code: "overloaded",
      });
      // What is there already isn't more.
      await scene.signal(runId, "approval", { by: "last" }, { id: "last" });
      await scene.work("pod-1", [asking]);
      expect(await scene.ended(runId)).toMatchObject({ output: { done: "for many" } });
    });

    test("what is said while pods are away is heard by the one that comes, after one has died waiting", async () => {
      const { runId } = await scene.start(asking, null);
      const first = await scene.work("pod-1", [asking]);
      await scene.doing(runId, "waiting_for_signal");
      await scene.queue.outcome(first.stop({ waitMs: 0 }));
      await scene.signal(runId, "approval", { by: "ada" });
      await scene.die(runId);
      await scene.work("pod-2", [asking]);
      expect(await scene.ended(runId)).toMatchObject({ output: { done: "for ada" } });
      const pods = (await scene.history(runId)).map(({ podId }) => podId);
      expect(new Set(pods)).toEqual(new Set(["pod-1", "mortal", "pod-2"]));
    });
  });
}
