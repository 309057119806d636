import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { rowsOf } from "../queue/queue.contract.ts";
import { cancelTask } from "../queue/statements/ask.ts";
import type { StoreKind } from "../store/database.contract.ts";
import { sql } from "../store/sql.ts";
import { talker, waitsFor } from "./children.contract.ts";
import { givesBack, holding, openRuns, type RunsUnderTest } from "./scene-of-runs.contract.ts";

/** No end of a child is missed by its parent, and none is started in vain, on every store. */
export function childrenRacesContract(kind: StoreKind): void {
  describe(`parents in the wrong moment on ${kind.name}`, () => {
    let scene: RunsUnderTest;
    beforeEach(async () => {
      scene = await openRuns(kind);
    });
    afterEach(() => scene.close());

    test("the last child that ends while its parent is being parked isn't missed", async () => {
      const parent = waitsFor("a");
      const held = holding(scene.database, givesBack, "answer");
      await scene.work("pod-1", [parent], { database: held.database });
      const { runId } = await scene.start(parent, null);
      await scene.queue.until("the write that parks it", () => held.reached);
      await scene.work("pod-2", [parent, talker]);
      const [child] = await scene.childrenOf(runId);
      await scene.signal(child!.runId, "word", 1);
      expect(await scene.ended(runId)).toMatchObject({ output: { each: [{ said: 1 }] } });
      held.letGo();
      expect(await scene.noted(runId)).toHaveLength(5);
    });

    test("the last child that ends while its parent is claimed isn't missed", async () => {
      const parent = waitsFor("a", "b");
      const first = await scene.work("pod-1", [parent, talker]);
      const { runId } = await scene.start(parent, null);
      const [a, b] = await scene.childrenAwaited(runId);
      await scene.queue.until("the children's waits", async () =>
        (await scene.childrenOf(runId)).every(({ doing }) => doing?.type === "waiting_for_signal"),
      );
      await scene.queue.outcome(first.stop({ waitMs: 0 }));
      // A pod has looked, found one open, and is about to park the parent again.
      const held = holding(scene.database, givesBack);
      await scene.database.write([sql`update ${rowsOf} set parked = 0 where task_id = ${runId}`]);
      await scene.work("pod-2", [parent], { database: held.database });
      await scene.queue.until("the write that parks it again", () => held.reached);
      await scene.work("pod-3", [talker]);
      for (const child of [a, b]) await scene.signal(child!.runId, "word", child!.input);
      for (const child of [a, b]) await scene.ended(child!.runId);
      expect(await scene.view(runId)).toMatchObject({ doing: { type: "running" } });
      held.letGo();
      expect(await scene.ended(runId)).toMatchObject({
        output: { each: [{ said: "a" }, { said: "b" }] },
      });
    });

    test("a parent that is claimed early, with a child open, waits on as before", async () => {
      const parent = waitsFor("a", "b");
      await scene.work("pod-1", [parent, talker]);
      const { runId } = await scene.start(parent, null);
      const [a, b] = await scene.childrenAwaited(runId);
      await scene.cancel(a!.runId);
      await scene.ended(a!.runId);
      const before = await scene.doing(runId, "waiting_for_children");
      await scene.die(runId);
      const after = await scene.doing(runId, "waiting_for_children");
      expect(after).toMatchObject({ doing: before.doing, deaths: 1, intent: null });
      await scene.signal(b!.runId, "word", 1);
      // Only when all have ended does one that was cancelled count.
      expect(await scene.ended(runId)).toMatchObject({ status: "failed" });
      expect(await scene.childrenOf(runId)).toHaveLength(2);
    });

    test.runIf(kind.name.startsWith("Postgres"))(
      "none is started by a parent that is being cancelled in somebody's transaction",
      async () => {
        const caller = await scene.queue.store.caller!();
        const held = holding(scene.database, givesBack);
        const parent = waitsFor("a", "b");
        await scene.work("pod-1", [parent, talker], { database: held.database });
        const { runId } = await scene.start(parent, null);
        await scene.queue.until("the write that starts them", () => held.reached);
        await caller.begin();
        await scene.database.within(caller.handle).write(cancelTask(runId));
        held.letGo();
        await scene.untilBlocked(caller);
        await caller.exec("commit");
        await caller.close();
        expect(await scene.ended(runId)).toMatchObject({ status: "cancelled" });
        expect(await scene.childrenOf(runId)).toEqual([]);
      },
    );
  });
}
