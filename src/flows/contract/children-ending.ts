import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { task } from "../../tasks/task.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { moody, talker, waitsFor } from "./children.ts";
import { flow } from "../flow.ts";
import { releaseStatement, holding, openRuns, type RunsHarness } from "./harness.ts";

/** What becomes of parents and children where one of them fails or is cancelled, on every store. */
export function childrenEndingContract(kind: StoreKind): void {
  describe(`ends of parents and children on ${kind.name}`, () => {
    let harness: RunsHarness;
    beforeEach(async () => {
      harness = await openRuns(kind);
    });
    afterEach(() => harness.close());

    test("one that fails fails its parent, but not before all have ended", async () => {
      const parent = flow("parent", { version: 1 })
        .children("each", () => [
          [moody, "bad"],
          [talker, "slow"],
        ])
        .to("never", () => ({ never: true }))
        .end();
      await harness.work("pod-1", [parent, moody, talker]);
      const { runId } = await harness.start(parent, null);
      const [bad, slow] = await harness.childrenAwaited(runId);
      await harness.ended(bad!.runId);
      expect((await harness.doing(runId, "waiting_for_children")).status).toBe("open");
      await harness.signal(slow!.runId, "word", 1);
      const failed = await harness.ended(runId);
      expect(failed).toMatchObject({
        status: "failed",
        state: {},
        error: { code: "dependency_failed", taskId: bad!.runId },
      });
      expect(failed.error?.message).toContain("in a bad mood");
      // It isn't repeated: the children would end the same way the next time.
      expect(await harness.noted(runId)).toEqual(["start", "park each", "error each", "finish"]);
    });

    test("where failures are kept, the state shows how each has ended", async () => {
      const ill = task<null, null, number>("ill", { attempts: 1 }, () => {
        throw new Error("fever");
      });
      const parent = flow("parent", { version: 1 })
        .children("each", { failures: "keep" }, () => [
          [moody, "good"],
          [moody, "bad"],
          [talker, "cancelled"],
          [ill, null],
        ])
        .to("after", ({ state }) => ({
          ok: state.each.filter((one) => one.status === "completed").length,
        }))
        .end();
      await harness.work("pod-1", [parent, moody, talker, ill]);
      const { runId } = await harness.start(parent, null);
      const children = await harness.childrenAwaited(runId);
      await harness.cancel(children.find(({ flow: name }) => name === "talker")!.runId);
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: {
          ok: 1,
          each: [
            { status: "completed", output: { mood: "good" } },
            { status: "failed", error: { code: "aborted" } },
            { status: "cancelled" },
            { status: "failed", error: { code: "handler_failed", message: "fever" } },
          ],
        },
      });
    });

    test("a child that is cancelled fails its parent", async () => {
      const parent = waitsFor("a");
      await harness.work("pod-1", [parent, talker]);
      const { runId } = await harness.start(parent, null);
      const [child] = await harness.childrenAwaited(runId);
      await harness.cancel(child!.runId);
      const failed = await harness.ended(runId);
      expect(failed).toMatchObject({ status: "failed", error: { taskId: child!.runId } });
      expect(failed.error?.message).toContain("was cancelled");
    });

    test.each(["a run", "a task"])(
      "a child that kills its pods, %s, fails its parent",
      async (what) => {
        const deadly = task<null>("deadly", {}, () => {});
        const grim = flow<null>("grim", { version: 1 })
          .to("reap", () => ({}))
          .end();
        const child = what === "a run" ? grim : deadly;
        const parent = flow("parent", { version: 1 })
          .children("each", () => [[child, null]])
          .end();
        await harness.work("pod-1", [parent]);
        const { runId } = await harness.start(parent, null);
        await harness.doing(runId, "waiting_for_children");
        const [childId] = (await harness.view(runId)).waitsFor;
        for (let deaths = 0; deaths < 4; deaths++) await harness.die(childId!);
        await harness.work("pod-2", [grim]);
        const failed = await harness.ended(runId);
        expect(failed).toMatchObject({ status: "failed", error: { taskId: childId } });
        expect(failed.error?.message).toContain("4 pods");
      },
    );

    test("a parent that is cancelled cancels its children in the same write", async () => {
      const errand = task<null>("errand", {}, () => {});
      const parent = flow("parent", { version: 1 })
        .children("each", () => [
          [talker, "a"],
          [moody, "good"],
          [errand, null],
        ])
        .finally("tidy", () => {})
        .end();
      const worker = await harness.work("pod-1", [parent, moody]);
      const { runId } = await harness.start(parent, null);
      const [, good] = await harness.childrenAwaited(runId);
      await harness.ended(good!.runId);
      await harness.queue.outcome(worker.stop({ waitMs: 0 }));
      expect(await harness.cancel(runId)).toBe("cancelling");
      // Every write of this pod after the one that cancels is held.
      const held = holding(harness.database, releaseStatement);
      await harness.work("pod-2", [parent], { database: held.database });
      await harness.queue.until("the end", () => held.reached);
      const [a] = await harness.childrenOf(runId);
      expect(a).toMatchObject({ status: "open", cancelRequested: true, doing: { type: "ready" } });
      expect(await harness.view(runId)).toMatchObject({ status: "open", intent: "cancelled" });
      const { waitsFor: ids } = await harness.view(runId);
      expect(await harness.queue.get(ids[2]!)).toMatchObject({ status: "cancelled" });
      held.letGo();
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled" });
      await harness.work("pod-3", [talker]);
      expect(await harness.ended(a!.runId)).toMatchObject({ status: "cancelled" });
      expect(await harness.view(good!.runId)).toMatchObject({ status: "completed" });
    });

    test("a cancel goes down to grandchildren, and what has waited for them wakes", async () => {
      const middle = flow<string>("middle", { version: 1 })
        .children("own", ({ input }) => [[talker, input]])
        .end();
      const top = flow("top", { version: 1 })
        .children("each", () => [
          [middle, "x"],
          [middle, "y"],
        ])
        .end();
      await harness.work("pod-1", [top, middle, talker]);
      const { runId } = await harness.start(top, null);
      const middles = await harness.childrenAwaited(runId);
      const grandchildren = [];
      for (const each of middles)
        grandchildren.push(...(await harness.childrenAwaited(each.runId)));
      expect(grandchildren.map(({ input }) => input)).toEqual(["x", "y"]);
      await harness.cancel(runId);
      for (const each of [...middles, ...grandchildren]) {
        expect(await harness.ended(each.runId)).toMatchObject({ status: "cancelled" });
      }
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled" });
    });

    test("a parent that is started over keeps what has completed and starts the rest over", async () => {
      const counts: string[] = [];
      let mood = "bad";
      const fickle = flow<string>("fickle", { version: 1, attempts: 1 })
        .to("first", ({ input }) => void counts.push(`${input} first`))
        .to("second", ({ input }) => {
          counts.push(`${input} second`);
          if (input === "b" && mood === "bad") throw new Error("not now");
          return { is: input };
        })
        .end();
      const parent = flow("parent", { version: 1 })
        .children("each", () => [
          [fickle, "a"],
          [fickle, "b"],
          [talker, "c"],
        ])
        .end();
      await harness.work("pod-1", [parent, fickle, talker]);
      const { runId } = await harness.start(parent, null);
      const children = await harness.childrenAwaited(runId);
      await harness.cancel(children[2]!.runId);
      expect(await harness.ended(runId)).toMatchObject({ status: "failed" });
      expect(counts.toSorted()).toEqual(["a first", "a second", "b first", "b second"]);
      counts.length = 0;
      mood = "good";
      await harness.resume(runId);
      await harness.doing(runId, "waiting_for_children");
      await harness.folds();
      await harness.signal(children[2]!.runId, "word", "now");
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { each: [{ is: "a" }, { is: "b" }, { said: "now" }] },
      });
      // The child that had failed goes on where it stopped.
      expect(counts).toEqual(["b second"]);
      expect((await harness.childrenOf(runId)).map((child) => child.runId)).toEqual(
        children.map((child) => child.runId),
      );
    });
  });
}
