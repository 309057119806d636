import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { task } from "../../tasks/task.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { moody, talker, waitsFor } from "./children.ts";
import { flow } from "../flow.ts";
import { givesBack, holding, openRuns, type RunsUnderTest } from "./second-harness.ts";

/** What becomes of parents and children where one of them fails or is cancelled, on every store. */
export function childrenEndingContract(kind: StoreKind): void {
  describe(`ends of parents and children on ${kind.name}`, () => {
    let scene: RunsUnderTest;
    beforeEach(async () => {
      scene = await openRuns(kind);
    });
    afterEach(() => scene.close());

    test("one that fails fails its parent, but not before all have ended", async () => {
      const parent = flow("parent", { version: 1 })
        .children("each", () => [
          [moody, "bad"],
          [talker, "slow"],
        ])
        .to("never", () => ({ never: true }))
        .end();
      await scene.work("pod-1", [parent, moody, talker]);
      const { runId } = await scene.start(parent, null);
      const [bad, slow] = await scene.childrenAwaited(runId);
      await scene.ended(bad!.runId);
      expect((await scene.doing(runId, "waiting_for_children")).status).toBe("open");
      await scene.signal(slow!.runId, "word", 1);
      const failed = await scene.ended(runId);
      expect(failed).toMatchObject({
        status: "failed",
        state: {},
        error: { code: "dependency_failed", taskId: bad!.runId },
      });
      expect(failed.error?.message).toContain("in a bad mood");
      // Nobody repeats it: the children wouldn't end otherwise the next time.
      expect(await scene.noted(runId)).toEqual(["start", "park each", "error each", "finish"]);
    });

    test("where failures are kept, the state tells how each has ended", async () => {
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
      await scene.work("pod-1", [parent, moody, talker, ill]);
      const { runId } = await scene.start(parent, null);
      const children = await scene.childrenAwaited(runId);
      await scene.cancel(children.find(({ flow: name }) => name === "talker")!.runId);
      expect(await scene.ended(runId)).toMatchObject({
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
      await scene.work("pod-1", [parent, talker]);
      const { runId } = await scene.start(parent, null);
      const [child] = await scene.childrenAwaited(runId);
      await scene.cancel(child!.runId);
      const failed = await scene.ended(runId);
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
        await scene.work("pod-1", [parent]);
        const { runId } = await scene.start(parent, null);
        await scene.doing(runId, "waiting_for_children");
        const [childId] = (await scene.view(runId)).waitsFor;
        for (let deaths = 0; deaths < 4; deaths++) await scene.die(childId!);
        await scene.work("pod-2", [grim]);
        const failed = await scene.ended(runId);
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
      const worker = await scene.work("pod-1", [parent, moody]);
      const { runId } = await scene.start(parent, null);
      const [, good] = await scene.childrenAwaited(runId);
      await scene.ended(good!.runId);
      await scene.queue.outcome(worker.stop({ waitMs: 0 }));
      expect(await scene.cancel(runId)).toBe("cancelling");
      // Every write of this pod after the one that cancels is held.
      const held = holding(scene.database, givesBack);
      await scene.work("pod-2", [parent], { database: held.database });
      await scene.queue.until("the end", () => held.reached);
      const [a] = await scene.childrenOf(runId);
      expect(a).toMatchObject({ status: "open", cancelRequested: true, doing: { type: "ready" } });
      expect(await scene.view(runId)).toMatchObject({ status: "open", intent: "cancelled" });
      const { waitsFor: ids } = await scene.view(runId);
      expect(await scene.queue.get(ids[2]!)).toMatchObject({ status: "cancelled" });
      held.letGo();
      expect(await scene.ended(runId)).toMatchObject({ status: "cancelled" });
      await scene.work("pod-3", [talker]);
      expect(await scene.ended(a!.runId)).toMatchObject({ status: "cancelled" });
      expect(await scene.view(good!.runId)).toMatchObject({ status: "completed" });
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
      await scene.work("pod-1", [top, middle, talker]);
      const { runId } = await scene.start(top, null);
      const middles = await scene.childrenAwaited(runId);
      const grandchildren = [];
      for (const each of middles) grandchildren.push(...(await scene.childrenAwaited(each.runId)));
      expect(grandchildren.map(({ input }) => input)).toEqual(["x", "y"]);
      await scene.cancel(runId);
      for (const each of [...middles, ...grandchildren]) {
        expect(await scene.ended(each.runId)).toMatchObject({ status: "cancelled" });
      }
      expect(await scene.ended(runId)).toMatchObject({ status: "cancelled" });
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
      await scene.work("pod-1", [parent, fickle, talker]);
      const { runId } = await scene.start(parent, null);
      const children = await scene.childrenAwaited(runId);
      await scene.cancel(children[2]!.runId);
      expect(await scene.ended(runId)).toMatchObject({ status: "failed" });
      expect(counts.toSorted()).toEqual(["a first", "a second", "b first", "b second"]);
      counts.length = 0;
      mood = "good";
      await scene.resume(runId);
      await scene.doing(runId, "waiting_for_children");
      await scene.folds();
      await scene.signal(children[2]!.runId, "word", "now");
      expect(await scene.ended(runId)).toMatchObject({
        status: "completed",
        output: { each: [{ is: "a" }, { is: "b" }, { said: "now" }] },
      });
      // The child that had failed goes on where it stopped.
      expect(counts).toEqual(["b second"]);
      expect((await scene.childrenOf(runId)).map((child) => child.runId)).toEqual(
        children.map((child) => child.runId),
      );
    });
  });
}
