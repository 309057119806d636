import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort } from "../../base/errors.ts";
import { task } from "../../tasks/task.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsUnderTest, soon } from "./second-harness.ts";

/** What a run that is to come after others is promised on every store. */
export function afterContract(kind: StoreKind): void {
  describe(`runs after others on ${kind.name}`, () => {
    let scene: RunsUnderTest;
    let calls: string[];
    beforeEach(async () => {
      scene = await openRuns(kind);
      calls = [];
    });
    afterEach(() => scene.close());

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
      (await scene.start(second, null, { after, ...more })).runId;

    test("it starts when all that it is after have completed, runs and tasks", async () => {
      const one = await scene.start(first, null);
      const other = await scene.queue.enqueue(chore, "go", { delayMs: 20 });
      const runId = await follow([one.runId, other.taskId]);
      await scene.work("pod-1", [first, second, chore]);
      expect(await scene.view(runId)).toMatchObject({
        doing: { type: "waiting_for_others" },
        waitsFor: [one.runId, other.taskId],
        version: 0,
      });
      await scene.queue.ended(other.taskId);
      expect(await scene.view(runId)).toMatchObject({ doing: { type: "waiting_for_others" } });
      await scene.signal(one.runId, "word", "go");
      expect(await scene.ended(runId)).toMatchObject({ status: "completed" });
      // What it is after has ended only when its own finalizers have run.
      expect(calls).toEqual(["first late", "second work", "second completed"]);
    });

    test("one whose predecessors have completed before it was started starts at once", async () => {
      await scene.work("pod-1", [first, second]);
      const one = await scene.start(first, null);
      await scene.signal(one.runId, "word", "go");
      await scene.ended(one.runId);
      expect(await scene.ended(await follow([one.runId]))).toMatchObject({ status: "completed" });
    });

    test.each(["a run that fails", "a run that is cancelled", "a task that fails"])(
      "after %s, it fails through its finalizers, and nothing else of it runs",
      async (what) => {
        await scene.work("pod-1", [first, second, chore]);
        let id: string;
        if (what === "a task that fails") {
          id = (await scene.queue.enqueue(chore, "fail", { delayMs: 10 })).taskId;
        } else id = (await scene.start(first, null)).runId;
        const runId = await follow([id]);
        if (what === "a run that fails") await scene.signal(id, "word", "fail");
        if (what === "a run that is cancelled") await scene.cancel(id);
        const run = await scene.ended(runId);
        expect(run).toMatchObject({
          status: "failed",
          state: {},
          error: { code: "dependency_failed", taskId: id },
        });
        expect(calls.filter((call) => call.startsWith("second"))).toEqual(["second failed"]);
        expect(await scene.noted(runId)).toEqual([
          "start",
          "error work",
          "complete tidy",
          "finish",
        ]);
      },
    );

    test("after one that had failed before, it fails too", async () => {
      await scene.work("pod-1", [first, second]);
      const one = await scene.start(first, null);
      await scene.signal(one.runId, "word", "fail");
      await scene.ended(one.runId);
      expect(await scene.ended(await follow([one.runId]))).toMatchObject({ status: "failed" });
    });

    test("where that was asked for, it runs however they end, once all have", async () => {
      await scene.work("pod-1", [first, second]);
      const ids = [];
      for (let count = 0; count < 3; count++) ids.push((await scene.start(first, null)).runId);
      const runId = await follow(ids, { afterFailed: "run" });
      await scene.signal(ids[0]!, "word", "fail");
      await scene.cancel(ids[1]!);
      for (const id of ids.slice(0, 2)) await scene.ended(id);
      expect(await scene.view(runId)).toMatchObject({ doing: { type: "waiting_for_others" } });
      await scene.signal(ids[2]!, "word", "go");
      expect(await scene.ended(runId)).toMatchObject({ status: "completed" });
    });

    test("a failure dooms those that come after those that come after it", async () => {
      await scene.work("pod-1", [first, second]);
      const one = await scene.start(first, null);
      const two = await follow([one.runId]);
      const three = await follow([two]);
      await scene.signal(one.runId, "word", "fail");
      expect(await scene.ended(three)).toMatchObject({ status: "failed", error: { taskId: two } });
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
      await scene.work("pod-1", [first, clumsy]);
      const one = await scene.start(first, null);
      const { runId } = await scene.start(clumsy, null, { after: [one.runId] });
      await scene.cancel(one.runId);
      expect(await scene.ended(runId)).toMatchObject({
        status: "failed",
        error: { code: "dependency_failed" },
      });
      expect(tries).toBe(3);
      expect(calls).toEqual(["first late"]);
    });

    test("one that was doomed and is started over waits for what was started over too", async () => {
      await scene.work("pod-1", [first, second]);
      const one = await scene.start(first, null);
      const runId = await follow([one.runId]);
      await scene.cancel(one.runId);
      await scene.ended(runId);
      // What it is after is still cancelled, so it is doomed anew.
      await scene.resume(runId);
      await scene.queue.until("the second failure", async () => {
        const { length } = (await scene.noted(runId)).filter((each) => each === "finish");
        return length === 2;
      });
      await scene.folds();
      await scene.resume(one.runId);
      await scene.resume(runId);
      await scene.doing(runId, "waiting_for_others");
      calls.length = 0;
      await scene.signal(one.runId, "word", "go");
      expect(await scene.ended(runId)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["first late", "second work", "second completed"]);
    });

    test("a task can come after a run, and sees it end with its finalizers", async () => {
      const echo = task<null>("echo", {}, () => void calls.push("task"));
      await scene.work("pod-1", [first, echo]);
      const one = await scene.start(first, null);
      const { taskId } = await scene.queue.enqueue(echo, null, { after: [one.runId] });
      await scene.signal(one.runId, "word", "go");
      await scene.queue.ended(taskId);
      expect(calls).toEqual(["first late", "task"]);
    });

    test("it isn't forgotten, whichever comes first: its start or the end of what it is after", async () => {
      await scene.work("pod-1", [first, second]);
      const followers = [];
      for (let count = 0; count < 10; count++) {
        const one = await scene.start(first, null);
        await scene.doing(one.runId, "waiting_for_signal");
        const told = scene.signal(one.runId, "word", "go");
        const [started] = await scene.queue.outcome(Promise.all([follow([one.runId]), told]));
        followers.push(started);
      }
      for (const runId of followers) {
        expect(await scene.ended(runId)).toMatchObject({ status: "completed" });
      }
    });

    test("one that is to start later as well waits for both", async () => {
      await scene.work("pod-1", [first, second]);
      const one = await scene.start(first, null);
      const options = { after: [one.runId], delayMs: 60 };
      const { runId } = await scene.start(second, null, options);
      const { createdAtMs } = await scene.view(runId);
      await scene.signal(one.runId, "word", "go");
      const run = await scene.ended(runId);
      expect(run.updatedAtMs - createdAtMs).toBeGreaterThanOrEqual(60);
      expect(run.status).toBe("completed");
    });
  });
}
