import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { rowsOf } from "../../tasks/contract/harness.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { flow } from "../flow.ts";
import {
  givesBack,
  holding,
  looksForSignal,
  openRuns,
  type RunsUnderTest,
} from "./second-harness.ts";
import { asking } from "./signals.ts";
import { sendSignal } from "../sql.ts";

/** No signal is missed that comes while a run is being parked, on every store. */
export function signalsRacesContract(kind: StoreKind): void {
  describe(`signals in the wrong moment on ${kind.name}`, () => {
    let scene: RunsUnderTest;
    beforeEach(async () => {
      scene = await openRuns(kind);
    });
    afterEach(() => scene.close());

    test("one that comes while the run is being parked isn't missed", async () => {
      const held = holding(scene.database, givesBack);
      await scene.work("pod-1", [asking], { database: held.database });
      const { runId } = await scene.start(asking, null);
      await scene.queue.until("the write that parks it", () => held.reached);
      await scene.signal(runId, "approval", { by: "racer" });
      held.letGo();
      expect(await scene.ended(runId)).toMatchObject({ output: { done: "for racer" } });
      // The run was never given back for it.
      expect(await scene.noted(runId)).not.toContain("park approval");
    });

    test("one that comes between the run's look and its parking isn't missed", async () => {
      const held = holding(scene.database, looksForSignal, "answer");
      await scene.work("pod-1", [asking], { database: held.database });
      const { runId } = await scene.start(asking, null);
      await scene.queue.until("the look", () => held.reached);
      await scene.signal(runId, "approval", { by: "racer" });
      held.letGo();
      expect(await scene.ended(runId)).toMatchObject({ output: { done: "for racer" } });
    });

    test("one that comes in time isn't missed because its pod was late with what it saw before", async () => {
      const impatient = flow("impatient", { version: 1 })
        .signal("word", { timeoutMs: 1_000, onTimeout: "fail" })
        .end();
      const first = await scene.work("pod-1", [impatient]);
      const { runId } = await scene.start(impatient, null);
      await scene.doing(runId, "waiting_for_signal");
      await scene.queue.outcome(first.stop({ waitMs: 0 }));
      const held = holding(scene.database, looksForSignal, "answer");
      await scene.database.write([sql`update ${rowsOf} set parked = 0 where task_id = ${runId}`]);
      await scene.work("pod-2", [impatient], { database: held.database });
      await scene.queue.until("the look", () => held.reached);
      await scene.signal(runId, "word", "in time");
      await scene.queue.pass(2_000);
      held.letGo();
      expect(await scene.ended(runId)).toMatchObject({ output: { word: "in time" } });
    });

    test("one that comes before the pod knows that the run is parked isn't missed", async () => {
      const held = holding(scene.database, givesBack, "answer");
      await scene.work("pod-1", [asking], { database: held.database });
      const { runId } = await scene.start(asking, null);
      await scene.queue.until("the write that parks it", () => held.reached);
      await scene.signal(runId, "approval", { by: "racer" });
      await scene.work("pod-2", [asking]);
      expect(await scene.ended(runId)).toMatchObject({ output: { done: "for racer" } });
      held.letGo();
      expect(await scene.noted(runId)).toEqual([
        "start",
        "complete ask",
        "park approval",
        "complete approval",
        "complete act",
        "finish",
      ]);
    });

    test.runIf(kind.name.startsWith("Postgres"))(
      "one whose transaction is open while the run is parked isn't missed",
      async () => {
        const caller = await scene.queue.store.caller!();
        const held = holding(scene.database, givesBack);
        await scene.work("pod-1", [asking], { database: held.database });
        const { runId } = await scene.start(asking, null);
        await scene.queue.until("the write that parks it", () => held.reached);
        await caller.begin();
        const payload = `{"by":"racer"}`;
        const signal = { runId, signalId: "one", name: "approval", payload };
        await scene.database.within(caller.handle).write(sendSignal(signal));
        held.letGo();
        await scene.untilBlocked(caller);
        await caller.exec("commit");
        await caller.close();
        expect(await scene.ended(runId)).toMatchObject({ output: { done: "for racer" } });
      },
    );
  });
}
