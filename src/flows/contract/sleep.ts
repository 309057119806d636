import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import { releaseStatement, holding, openRuns, type RunsHarness } from "./harness.ts";

/** What a run that sleeps is promised on every store. */
export function sleepContract(kind: StoreKind): void {
  describe(`durable sleep on ${kind.name}`, () => {
    let harness: RunsHarness;
    let calls: string[];
    beforeEach(async () => {
      harness = await openRuns(kind);
      calls = [];
    });
    afterEach(() => harness.close());

    const napping = (ms: number) =>
      flow("napping", { version: 1 })
        .to("before", () => void calls.push("before"))
        .sleep("nap", ms)
        .to("after", () => void calls.push("after"))
        .end();
    const hourMs = 3_600_000;

    test("a run sleeps for as long as its transition returned", async () => {
      const nap = napping(60);
      await harness.work("pod-1", [nap]);
      const { runId } = await harness.start(nap, null);
      const ended = await harness.ended(runId);
      expect(ended.status).toBe("completed");
      const { sinceMs, untilMs } = await harness.parkedFor(runId);
      expect(untilMs - sinceMs).toBeGreaterThanOrEqual(60);
      expect(ended.updatedAtMs).toBeGreaterThanOrEqual(untilMs);
      expect(calls).toEqual(["before", "after"]);
      const naps = (await harness.history(runId)).filter(({ transition }) => transition === "nap");
      expect(naps).toMatchObject([{ type: "park" }, { type: "complete", startedAtMs: sinceMs }]);
      expect(naps[1]!.atMs).toBeGreaterThanOrEqual(untilMs);
    });

    test("it holds no pod meanwhile, and shows until when it sleeps", async () => {
      const nap = napping(hourMs);
      const pod = await harness.work("pod-1", [nap]);
      const { runId } = await harness.start(nap, null);
      const asleep = await harness.doing(runId, "sleeping");
      expect(asleep).toMatchObject({ at: "nap", status: "open" });
      const { sinceMs, untilMs } = await harness.parkedFor(runId);
      expect(asleep.doing).toEqual({ type: "sleeping", sinceMs, untilMs });
      await harness.queue.until("the pod being idle", () => pod.running === 0);
      expect(calls).toEqual(["before"]);
    });

    test("it wakes on another pod than it fell asleep on", async () => {
      const nap = napping(30);
      // The first pod never learns that it gave the run back, so its only place stays taken.
      const held = holding(harness.database, releaseStatement, "answer");
      const capacity = { slots: 1, target: 1 };
      await harness.work("pod-1", [nap], { database: held.database, capacity });
      const { runId } = await harness.start(nap, null);
      await harness.queue.until("the write that gives it back", () => held.reached);
      await harness.work("pod-2", [nap]);
      await harness.ended(runId);
      held.letGo();
      expect(calls).toEqual(["before", "after"]);
      const byPod = (await harness.history(runId)).map(({ type, podId }) => `${type} ${podId}`);
      expect(byPod).toEqual([
        "start pod-1",
        "complete pod-1",
        "park pod-1",
        "complete pod-2",
        "complete pod-2",
        "finish pod-2",
      ]);
    });

    test("one that is claimed before its time sleeps on until the time that was set", async () => {
      const nap = napping(hourMs);
      await harness.work("pod-1", [nap]);
      const { runId } = await harness.start(nap, null);
      const before = await harness.doing(runId, "sleeping");
      const tokenOf = async () => Number((await harness.queue.row(runId))["claim_token"]);
      const token = await tokenOf();
      await harness.die(runId);
      // One for the pod that died, one for the claim after it, and one when that is given back.
      await harness.queue.until("another claim", async () => (await tokenOf()) >= token + 3);
      const after = await harness.doing(runId, "sleeping");
      expect(after.doing).toEqual(before.doing);
      expect(calls).toEqual(["before"]);
      // Only falling asleep is noted.
      const parks = (await harness.noted(runId)).filter((each) => each === "park nap");
      expect(parks).toHaveLength(1);
      expect(after.deaths).toBe(1);
    });

    test("a signal to a sleeper doesn't wake it, and is kept for when it wakes", async () => {
      const deaf = flow("deaf", { version: 1 }).sleep("nap", hourMs).signal("word").end();
      await harness.work("pod-1", [deaf]);
      const { runId } = await harness.start(deaf, null);
      await harness.doing(runId, "sleeping");
      const before = await harness.queue.row(runId);
      await harness.signal(runId, "word", "early");
      await harness.clock.advance(100);
      const after = await harness.queue.row(runId);
      const { claim_token: token, parked, run_at: runAt } = before;
      expect(after).toMatchObject({ claim_token: token, parked, run_at: runAt });
      expect(await harness.signals(runId)).toHaveLength(1);
    });

    test("for how long can be worked out from the state, and none is no sleep", async () => {
      const planned = flow<number>("planned", { version: 1 })
        .to("plan", ({ input }) => ({ ms: input }))
        .sleep("nap", ({ state }) => state.ms)
        .end();
      await harness.work("pod-1", [planned]);
      const awake = await harness.start(planned, 0);
      await harness.ended(awake.runId);
      expect(await harness.noted(awake.runId)).toEqual([
        "start",
        "complete plan",
        "complete nap",
        "finish",
      ]);
      const asleep = await harness.start(planned, 20);
      await harness.ended(asleep.runId);
      expect(await harness.noted(asleep.runId)).toContain("park nap");
    });

    test("a sleeper leaves its place in a queue to the next", async () => {
      const queue = { name: "one-by-one", limit: 1 };
      const lazy = flow<number>("lazy", { version: 1, queue })
        .to("begin", ({ input }) => void calls.push(`begin ${input}`))
        .sleep("nap", hourMs)
        .end();
      await harness.work("pod-1", [lazy]);
      const runs = [await harness.start(lazy, 1), await harness.start(lazy, 2)];
      for (const { runId } of runs) await harness.doing(runId, "sleeping");
      expect(calls).toEqual(["begin 1", "begin 2"]);
    });
  });
}
