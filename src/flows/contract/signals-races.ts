import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { rowsOf } from "../../tasks/contract/harness.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { flow } from "../flow.ts";
import {
  releaseStatement,
  holding,
  signalReadStatement,
  openRuns,
  type RunsHarness,
} from "./harness.ts";
import { asking } from "./signals.ts";
import { sendSignal } from "../../tasks/sql/signals.ts";

/** No signal is missed that comes while a run is being parked, on every store. */
export function signalsRacesContract(kind: StoreKind): void {
  describe(`signals in the wrong moment on ${kind.name}`, () => {
    let harness: RunsHarness;
    beforeEach(async () => {
      harness = await openRuns(kind);
    });
    afterEach(() => harness.close());

    test("one that comes while the run is being parked isn't missed", async () => {
      const held = holding(harness.database, releaseStatement);
      await harness.work("pod-1", [asking], { database: held.database });
      const { runId } = await harness.start(asking, null);
      await harness.queue.until("the write that parks it", () => held.reached);
      await harness.signal(runId, "approval", { by: "racer" });
      held.letGo();
      expect(await harness.ended(runId)).toMatchObject({ output: { done: "for racer" } });
      // The run was never given back for it.
      expect(await harness.noted(runId)).not.toContain("park approval");
    });

    test("one that comes between the run's read and its parking isn't missed", async () => {
      const held = holding(harness.database, signalReadStatement, "answer");
      await harness.work("pod-1", [asking], { database: held.database });
      const { runId } = await harness.start(asking, null);
      await harness.queue.until("the look", () => held.reached);
      await harness.signal(runId, "approval", { by: "racer" });
      held.letGo();
      expect(await harness.ended(runId)).toMatchObject({ output: { done: "for racer" } });
    });

    test("one that comes in time isn't missed because its pod was late with what it saw before", async () => {
      const impatient = flow("impatient", { version: 1 })
        .signal("word", { timeoutMs: 60_000, onTimeout: "fail" })
        .end();
      const first = await harness.work("pod-1", [impatient]);
      const { runId } = await harness.start(impatient, null);
      await harness.doing(runId, "waiting_for_signal");
      await harness.queue.outcome(first.stop({ waitMs: 0 }));
      const held = holding(harness.database, signalReadStatement, "answer");
      await harness.database.write([
        sql`update ${rowsOf} set parked = 0, run_at = 0 where task_id = ${runId}`,
      ]);
      await harness.work("pod-2", [impatient], { database: held.database });
      await harness.queue.until("the look", () => held.reached);
      await harness.signal(runId, "word", "in time");
      await harness.queue.pass(120_000);
      held.letGo();
      expect(await harness.ended(runId)).toMatchObject({ output: { word: "in time" } });
    });

    test("one that comes before the pod knows that the run is parked isn't missed", async () => {
      const held = holding(harness.database, releaseStatement, "answer");
      await harness.work("pod-1", [asking], { database: held.database });
      const { runId } = await harness.start(asking, null);
      await harness.queue.until("the write that parks it", () => held.reached);
      await harness.signal(runId, "approval", { by: "racer" });
      await harness.work("pod-2", [asking]);
      expect(await harness.ended(runId)).toMatchObject({ output: { done: "for racer" } });
      held.letGo();
      expect(await harness.noted(runId)).toEqual([
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
        const caller = await harness.queue.store.caller!();
        const held = holding(harness.database, releaseStatement);
        await harness.work("pod-1", [asking], { database: held.database });
        const { runId } = await harness.start(asking, null);
        await harness.queue.until("the write that parks it", () => held.reached);
        await caller.begin();
        const payload = `{"by":"racer"}`;
        const signal = {
          taskId: runId,
          to: "run",
          signalId: "one",
          name: "approval",
          payload,
        } as const;
        await harness.database.within(caller.handle).write(sendSignal(signal));
        held.letGo();
        await harness.untilBlocked(caller);
        await caller.exec("commit");
        await caller.close();
        expect(await harness.ended(runId)).toMatchObject({ output: { done: "for racer" } });
      },
    );
  });
}
