import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort } from "../../base/errors.ts";
import { task } from "../../tasks/task.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness, soon } from "./harness.ts";

/** What a run that is to come after others is promised on every store. */
export function afterContract(kind: StoreKind): void {
  describe(`runs after others on ${kind.name}`, () => {
    let harness: RunsHarness;
    let calls: string[];
    beforeEach(async () => {
      harness = await openRuns(kind);
      calls = [];
    });
    afterEach(() => harness.close());

    /** Ends as it is told. */
    const first = flow("first", { version: 1 })
      .signal("word")
      .to("act", ({ state }) => {
        if (state.word === "fail") throw abort("told to");
      })
      .finally("late", () => void calls.push("first late"))
      .end();
    const second = flow("second", { version: 1, attempts: 2, backoff: soon })
      .to("work", () => void calls.push("second work"))
      .finally("tidy", ({ outcome }) => void calls.push(`second ${outcome.type}`))
      .end();
    const chore = task<string>("chore", { attempts: 1 }, ({ input }) => {
      if (input === "fail") throw new Error("told to");
    });
    const follow = async (after: string[], more: { afterFailed?: "run" | "fail" } = {}) =>
      (await harness.start(second, null, { after, ...more })).runId;

    test("it starts when all that it is after have completed, runs and tasks", async () => {
      const one = await harness.start(first, null);
      const other = await harness.queue.enqueue(chore, "go", { delayMs: 60_000 });
      const runId = await follow([one.runId, other.taskId]);
      await harness.work("pod-1", [first, second, chore]);
      expect(await harness.view(runId)).toMatchObject({
        doing: { type: "waiting_for_others" },
        waitsFor: [one.runId, other.taskId],
        version: 0,
      });
      await harness.pass(60_000);
      await harness.queue.ended(other.taskId);
      expect(await harness.view(runId)).toMatchObject({ doing: { type: "waiting_for_others" } });
      await harness.signal(one.runId, "word", "go");
      expect(await harness.ended(runId)).toMatchObject({ status: "completed" });
      // What it is after has ended only when its own finalizers have run.
      expect(calls).toEqual(["first late", "second work", "second completed"]);
    });

    test("one whose predecessors have completed before it was started starts at once", async () => {
      await harness.work("pod-1", [first, second]);
      const one = await harness.start(first, null);
      await harness.signal(one.runId, "word", "go");
      await harness.ended(one.runId);
      expect(await harness.ended(await follow([one.runId]))).toMatchObject({ status: "completed" });
    });

    test.each(["a run that fails", "a run that is cancelled", "a task that fails"])(
      "after %s, it fails through its finalizers, and nothing else of it runs",
      async (what) => {
        await harness.work("pod-1", [first, second, chore]);
        let id: string;
        if (what === "a task that fails") {
          id = (await harness.queue.enqueue(chore, "fail", { delayMs: 10 })).taskId;
        } else id = (await harness.start(first, null)).runId;
        const runId = await follow([id]);
        if (what === "a run that fails") await harness.signal(id, "word", "fail");
        if (what === "a run that is cancelled") await harness.cancel(id);
        const run = await harness.ended(runId);
        expect(run).toMatchObject({
          status: "failed",
          state: {},
          error: { code: "dependency_failed", taskId: id },
        });
        expect(calls.filter((call) => call.startsWith("second"))).toEqual(["second failed"]);
        expect(await harness.noted(runId)).toEqual([
          "start",
          "error work",
          "complete tidy",
          "finish",
        ]);
      },
    );

    test("after one that had failed before, it fails too", async () => {
      await harness.work("pod-1", [first, second]);
      const one = await harness.start(first, null);
      await harness.signal(one.runId, "word", "fail");
      await harness.ended(one.runId);
      expect(await harness.ended(await follow([one.runId]))).toMatchObject({ status: "failed" });
    });

    test("with `afterFailed: run` it runs however they end, once all have", async () => {
      await harness.work("pod-1", [first, second]);
      const ids = [];
      for (let count = 0; count < 3; count++) ids.push((await harness.start(first, null)).runId);
      const runId = await follow(ids, { afterFailed: "run" });
      await harness.signal(ids[0]!, "word", "fail");
      await harness.cancel(ids[1]!);
      for (const id of ids.slice(0, 2)) await harness.ended(id);
      expect(await harness.view(runId)).toMatchObject({ doing: { type: "waiting_for_others" } });
      await harness.signal(ids[2]!, "word", "go");
      expect(await harness.ended(runId)).toMatchObject({ status: "completed" });
    });

    test("a failure dooms those that come after those that come after it", async () => {
      await harness.work("pod-1", [first, second]);
      const one = await harness.start(first, null);
      const two = await follow([one.runId]);
      const three = await follow([two]);
      await harness.signal(one.runId, "word", "fail");
      expect(await harness.ended(three)).toMatchObject({
        status: "failed",
        error: { taskId: two },
      });
      expect(calls).toEqual(["first late", "second failed", "second failed"]);
    });

    test("a doomed run whose finalizer fails at first is led to its end all the same", async () => {
      let tries = 0;
      const clumsy = flow("clumsy", { version: 1, backoff: soon })
        .to("work", () => void calls.push("work"))
        .finally("tidy", () => {
          if (++tries < 3) throw new Error("slipped");
        })
        .end();
      await harness.work("pod-1", [first, clumsy]);
      const one = await harness.start(first, null);
      const { runId } = await harness.start(clumsy, null, { after: [one.runId] });
      await harness.cancel(one.runId);
      expect(await harness.ended(runId)).toMatchObject({
        status: "failed",
        error: { code: "dependency_failed" },
      });
      expect(tries).toBe(3);
      expect(calls).toEqual(["first late"]);
    });

    test("one that was doomed and is started over waits for what was started over too", async () => {
      await harness.work("pod-1", [first, second]);
      const one = await harness.start(first, null);
      const runId = await follow([one.runId]);
      await harness.cancel(one.runId);
      await harness.ended(runId);
      // What it is after is still cancelled, so it is doomed anew.
      await harness.resume(runId);
      await harness.queue.until("the second failure", async () => {
        const { length } = (await harness.noted(runId)).filter((each) => each === "finish");
        return length === 2;
      });
      await harness.folds();
      await harness.resume(one.runId);
      await harness.resume(runId);
      await harness.doing(runId, "waiting_for_others");
      calls.length = 0;
      await harness.signal(one.runId, "word", "go");
      expect(await harness.ended(runId)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["first late", "second work", "second completed"]);
    });

    test("a task can come after a run, and sees it end with its finalizers", async () => {
      const echo = task<null>("echo", {}, () => void calls.push("task"));
      await harness.work("pod-1", [first, echo]);
      const one = await harness.start(first, null);
      const { taskId } = await harness.queue.enqueue(echo, null, { after: [one.runId] });
      await harness.signal(one.runId, "word", "go");
      await harness.queue.ended(taskId);
      expect(calls).toEqual(["first late", "task"]);
    });

    test("it isn't forgotten, whichever comes first: its start or the end of what it is after", async () => {
      await harness.work("pod-1", [first, second]);
      const followers = [];
      for (let count = 0; count < 10; count++) {
        const one = await harness.start(first, null);
        await harness.doing(one.runId, "waiting_for_signal");
        const told = harness.signal(one.runId, "word", "go");
        const [started] = await harness.queue.outcome(Promise.all([follow([one.runId]), told]));
        followers.push(started);
      }
      for (const runId of followers) {
        expect(await harness.ended(runId)).toMatchObject({ status: "completed" });
      }
    });

    test("one that is to start later as well waits for both", async () => {
      await harness.work("pod-1", [first, second]);
      const one = await harness.start(first, null);
      const options = { after: [one.runId], delayMs: 60 };
      const { runId } = await harness.start(second, null, options);
      const { createdAtMs } = await harness.view(runId);
      await harness.signal(one.runId, "word", "go");
      const run = await harness.ended(runId);
      expect(run.updatedAtMs - createdAtMs).toBeGreaterThanOrEqual(60);
      expect(run.status).toBe("completed");
    });
  });
}
