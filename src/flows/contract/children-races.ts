import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort } from "../../base/errors.ts";
import { rowsOf } from "../../tasks/contract/harness.ts";
import { cancelTask } from "../../tasks/sql/inspect.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { type Flow, flow } from "../flow.ts";
import { moody, talker, waitsFor } from "./children.ts";
import { releaseStatement, holding, openRuns, type RunsHarness } from "./harness.ts";
import { childrenOf } from "../sql.ts";

const looksAtChildren = childrenOf("", "").strings;

/** No end of a child is missed by its parent, and none is started in vain, on every store. */
export function childrenRacesContract(kind: StoreKind): void {
  describe(`parents in the wrong moment on ${kind.name}`, () => {
    let harness: RunsHarness;
    beforeEach(async () => {
      harness = await openRuns(kind);
    });
    afterEach(() => harness.close());

    test("the last child that ends while its parent is being parked isn't missed", async () => {
      const parent = waitsFor("a");
      const held = holding(harness.database, releaseStatement, "answer");
      await harness.work("pod-1", [parent], { database: held.database });
      const { runId } = await harness.start(parent, null);
      await harness.queue.until("the write that parks it", () => held.reached);
      await harness.work("pod-2", [parent, talker]);
      const [child] = await harness.childrenOf(runId);
      await harness.signal(child!.runId, "word", 1);
      expect(await harness.ended(runId)).toMatchObject({ output: { each: [{ said: 1 }] } });
      held.letGo();
      expect(await harness.noted(runId)).toHaveLength(5);
    });

    test("the last child that ends while its parent is claimed isn't missed", async () => {
      const parent = waitsFor("a", "b");
      const first = await harness.work("pod-1", [parent, talker]);
      const { runId } = await harness.start(parent, null);
      const [a, b] = await harness.childrenAwaited(runId);
      await harness.queue.until("the children's waits", async () =>
        (await harness.childrenOf(runId)).every(
          ({ doing }) => doing?.type === "waiting_for_signal",
        ),
      );
      await harness.queue.outcome(first.stop({ waitMs: 0 }));
      // A pod has looked, found one open, and is about to park the parent again.
      const held = holding(harness.database, releaseStatement);
      await harness.database.write([sql`update ${rowsOf} set parked = 0 where task_id = ${runId}`]);
      await harness.work("pod-2", [parent], { database: held.database });
      await harness.queue.until("the write that parks it again", () => held.reached);
      await harness.work("pod-3", [talker]);
      for (const child of [a, b]) await harness.signal(child!.runId, "word", child!.input);
      for (const child of [a, b]) await harness.ended(child!.runId);
      expect(await harness.view(runId)).toMatchObject({ doing: { type: "running" } });
      held.letGo();
      expect(await harness.ended(runId)).toMatchObject({
        output: { each: [{ said: "a" }, { said: "b" }] },
      });
    });

    test("a parent that is claimed early, with a child open, waits on as before", async () => {
      const parent = waitsFor("a", "b");
      await harness.work("pod-1", [parent, talker]);
      const { runId } = await harness.start(parent, null);
      const [a, b] = await harness.childrenAwaited(runId);
      await harness.cancel(a!.runId);
      await harness.ended(a!.runId);
      const before = await harness.doing(runId, "waiting_for_children");
      await harness.die(runId);
      const after = await harness.doing(runId, "waiting_for_children");
      expect(after).toMatchObject({ doing: before.doing, deaths: 1, intent: null });
      await harness.signal(b!.runId, "word", 1);
      // Only when all have ended does one that was cancelled count.
      expect(await harness.ended(runId)).toMatchObject({ status: "failed" });
      expect(await harness.childrenOf(runId)).toHaveLength(2);
    });

    /** A child that fails until it is in another mood. */
    const fickle = (is: { mood: string }) =>
      flow<string>("fickle", { version: 1, attempts: 1 })
        .to("be", () => {
          if (is.mood === "bad") throw abort("in a bad mood");
          return { mood: is.mood };
        })
        .end();

    test.each(["keep", "fail"] as const)(
      "a child that is started over while its parent is about to go on is waited for: %s",
      async (failures) => {
        const is = { mood: "bad" };
        const child = fickle(is);
        const finals: string[] = [];
        const parent = flow("parent", { version: 1 })
          .children("each", { failures }, () => [[child, "a"]])
          .to("after", () => ({ after: true }))
          .finally(({ outcome }) => void finals.push(outcome.type))
          .end();
        const held = holding(harness.database, looksAtChildren, "answer");
        await harness.work("pod-1", [parent], { database: held.database });
        const { runId } = await harness.start(parent, null);
        const second = await harness.work("pod-2", [child]);
        await harness.queue.until("the look", () => held.reached);
        await harness.queue.outcome(second.stop({ waitMs: 0 }));
        const [started] = await harness.childrenOf(runId);
        await harness.resume(started!.runId);
        held.letGo();
        await harness.doing(runId, "waiting_for_children");
        is.mood = "good";
        await harness.work("pod-3", [child]);
        const output = { mood: "good" };
        expect(await harness.ended(runId)).toMatchObject({
          status: "completed",
          output: { each: failures === "keep" ? [{ status: "completed", output }] : [output] },
        });
        expect(finals).toEqual(["completed"]);
      },
    );

    test("so is one whose parent ends with it, and was taken for dead meanwhile", async () => {
      const is = { mood: "bad" };
      const child = fickle(is);
      const parent = flow("parent", { version: 1 })
        .children("each", () => [[child, "a"]])
        .end();
      const held = holding(harness.database, looksAtChildren, "answer");
      await harness.work("pod-1", [parent], { database: held.database });
      const { runId } = await harness.start(parent, null);
      const second = await harness.work("pod-2", [child]);
      await harness.queue.until("the look", () => held.reached);
      await harness.queue.outcome(second.stop({ waitMs: 0 }));
      await harness.recover("pod-1", runId);
      await harness.resume((await harness.childrenOf(runId))[0]!.runId);
      held.letGo();
      await harness.doing(runId, "waiting_for_children");
      is.mood = "good";
      await harness.work("pod-3", [child]);
      expect(await harness.ended(runId)).toMatchObject({ output: { each: [{ mood: "good" }] } });
    });

    /** A parent at its second transition with children, whose child of the first has failed. */
    const atSecond = async (second: Flow<string>) => {
      const parent = flow("parent", { version: 1 })
        .children("first", { failures: "keep" }, () => [[moody, "bad"]])
        .children("second", () => [[second, "bad"]])
        .end();
      const pod = await harness.work("pod-1", [parent, moody, second]);
      const { runId } = await harness.start(parent, null);
      await harness.queue.until("the second", async () => {
        return (await harness.childrenOf(runId)).length === 2;
      });
      const children = await harness.childrenOf(runId);
      const idOf = (name: string) => children.find(({ flow: its }) => its === name)!.runId;
      return { parent, pod, runId, idOf };
    };

    test("a child of an earlier transition that is started over doesn't hold up a later one", async () => {
      const { parent, pod, runId, idOf } = await atSecond(talker);
      await harness.doing(idOf("talker"), "waiting_for_signal");
      await harness.queue.outcome(pod.stop({ waitMs: 0 }));
      await harness.work("pod-2", [parent, talker]);
      await harness.resume(idOf("moody"));
      await harness.signal(idOf("talker"), "word", 1);
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { first: [{ status: "failed" }], second: [{ said: 1 }] },
      });
    });

    test("nor a parent that is started over itself", async () => {
      const is = { mood: "bad" };
      const child = fickle(is);
      const { parent, pod, runId, idOf } = await atSecond(child);
      await harness.ended(runId);
      await harness.queue.outcome(pod.stop({ waitMs: 0 }));
      await harness.resume(idOf("moody"));
      is.mood = "good";
      await harness.resume(runId);
      await harness.work("pod-2", [parent, child]);
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { second: [{ mood: "good" }] },
      });
    });

    test("nor does one that the parent was to run after", async () => {
      const parent = waitsFor("a");
      const pod = await harness.work("pod-1", [parent, moody, talker]);
      const before = await harness.start(moody, "bad");
      const after = [before.runId];
      const { runId } = await harness.start(parent, null, { after, afterFailed: "run" });
      const [child] = await harness.childrenAwaited(runId);
      await harness.queue.outcome(pod.stop({ waitMs: 0 }));
      await harness.work("pod-2", [parent, talker]);
      await harness.resume(before.runId);
      await harness.signal(child!.runId, "word", 1);
      expect(await harness.ended(runId)).toMatchObject({ output: { each: [{ said: 1 }] } });
    });

    test("a parent whose child's transition was renamed waits on for it", async () => {
      const first = flow("parent", { version: 1 })
        .children("each", () => [
          [talker, "a"],
          [talker, "b"],
        ])
        .end();
      const later = flow("parent", { version: 2, renamed: { each: "all" } })
        .children("all", () => [[talker, "a"]])
        .end();
      const old = await harness.work("pod-1", [first, talker]);
      const { runId } = await harness.start(first, null);
      const [a, b] = await harness.childrenAwaited(runId);
      await harness.queue.outcome(old.stop({ waitMs: 0 }));
      await harness.database.write([sql`update ${rowsOf} set parked = 0 where task_id = ${runId}`]);
      await harness.work("pod-2", [later, talker]);
      await harness.queue.until("it waits under its new name", async () => {
        const run = await harness.view(runId);
        return run.at === "all" && run.doing?.type === "waiting_for_children";
      });
      const { run_seq: writes } = await harness.queue.row(runId);
      await harness.signal(a!.runId, "word", 1);
      await harness.ended(a!.runId);
      expect(await harness.queue.row(runId)).toMatchObject({ parked: 2, run_seq: writes });
      await harness.signal(b!.runId, "word", 2);
      expect(await harness.ended(runId)).toMatchObject({
        output: { all: [{ said: 1 }, { said: 2 }] },
      });
    });

    test.runIf(kind.name.startsWith("Postgres"))(
      "none is started by a parent that is being cancelled in an open transaction",
      async () => {
        const caller = await harness.queue.store.caller!();
        const held = holding(harness.database, releaseStatement);
        const parent = waitsFor("a", "b");
        await harness.work("pod-1", [parent, talker], { database: held.database });
        const { runId } = await harness.start(parent, null);
        await harness.queue.until("the write that starts them", () => held.reached);
        await caller.begin();
        await harness.database
          .within(caller.handle)
          .write(cancelTask(runId, harness.queue.ids.next()));
        held.letGo();
        await harness.untilBlocked(caller);
        await caller.exec("commit");
        await caller.close();
        expect(await harness.ended(runId)).toMatchObject({ status: "cancelled" });
        expect(await harness.childrenOf(runId)).toEqual([]);
      },
    );
  });
}
