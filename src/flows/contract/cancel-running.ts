import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness, soon } from "./harness.ts";

/** What the cancel of a run that a pod runs is promised on every store. */
export function cancelRunningContract(kind: StoreKind): void {
  describe(`cancelling what runs on ${kind.name}`, () => {
    let harness: RunsHarness;
    let calls: string[];
    beforeEach(async () => {
      harness = await openRuns(kind);
      calls = [];
    });
    afterEach(() => harness.close());

    /** A run whose transition ends when the test says so. */
    const gated = (last = false) => {
      let finish = (_value: object | void) => {};
      let fail = (_error: Error) => {};
      let signal: AbortSignal | undefined;
      const begin = flow("gated", { version: 1, backoff: soon }).to("work", (context) => {
        calls.push("work");
        ({ signal } = context);
        return new Promise<object | void>((resolve, reject) => {
          finish = resolve;
          fail = reject;
        });
      });
      const rest = last ? begin : begin.to("next", () => void calls.push("next"));
      return {
        flow: rest.finally("tidy", ({ outcome }) => void calls.push(`tidy ${outcome.type}`)).end(),
        finish: (value?: object) => finish(value),
        fail: (error: Error) => fail(error),
        begun: () => harness.queue.until("the work", () => signal !== undefined),
        told: () => harness.queue.until("the word to stop", () => signal!.aborted),
      };
    };

    test("what an aborted transition returns is kept, and nothing follows it", async () => {
      const work = gated();
      await harness.work("pod-1", [work.flow]);
      const { runId } = await harness.start(work.flow, null);
      await work.begun();
      expect(await harness.cancel(runId)).toBe("cancelling");
      await work.told();
      work.finish({ made: 1 });
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled", state: { made: 1 } });
      expect(calls).toEqual(["work", "tidy cancelled"]);
    });

    test("what an aborted transition throws is the cancel, and no failed attempt", async () => {
      const work = gated();
      await harness.work("pod-1", [work.flow]);
      const { runId } = await harness.start(work.flow, null);
      await work.begun();
      await harness.cancel(runId);
      await work.told();
      work.fail(new Error("I was interrupted"));
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled", error: null });
      expect(calls).toEqual(["work", "tidy cancelled"]);
      expect(await harness.noted(runId)).not.toContain("error work");
    });

    test("a transition that ignores its signal is abandoned, and its result is dropped", async () => {
      const work = gated();
      await harness.work("pod-1", [work.flow]);
      const { runId } = await harness.start(work.flow, null);
      await work.begun();
      await harness.cancel(runId);
      const run = await harness.ended(runId);
      expect(run).toMatchObject({ status: "cancelled", state: {} });
      work.finish({ late: true });
      await harness.clock.advance(100);
      expect(await harness.view(runId)).toEqual(run);
      expect(calls).toEqual(["work", "tidy cancelled"]);
    });

    test("what has run to its end is done, though its signal was aborted", async () => {
      const work = gated(true);
      await harness.work("pod-1", [work.flow]);
      const { runId } = await harness.start(work.flow, null);
      await work.begun();
      await harness.cancel(runId);
      await work.told();
      work.finish({ made: 1 });
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { made: 1 },
      });
      expect(calls).toEqual(["work", "tidy completed"]);
    });

    test("a run that is ending already isn't cancelled, and its finalizer isn't aborted", async () => {
      let letGo = () => {};
      let seen: AbortSignal | undefined;
      const ending = flow("ending", { version: 1 })
        .to("work", () => ({ made: 1 }))
        .finally("tidy", ({ signal }) => {
          seen = signal;
          return new Promise<void>((resolve) => (letGo = resolve));
        })
        .end();
      await harness.work("pod-1", [ending], { graceMs: 60_000 });
      const { runId } = await harness.start(ending, null);
      await harness.queue.until("the finalizer", () => seen !== undefined);
      await harness.cancel(runId);
      await harness.clock.advance(200);
      expect(seen!.aborted).toBe(false);
      letGo();
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { made: 1 },
      });
      expect(await harness.cancel(runId)).toBe("finished");
    });

    test("one that is ending stays so, also if its finalizer waits for another try", async () => {
      let tries = 0;
      const clumsy = flow("clumsy", { version: 1 })
        .to("work", () => ({ made: 1 }))
        .finally("tidy", { backoff: { baseMs: 3_600_000, maxMs: 3_600_000, jitter: 0 } }, () => {
          if (++tries < 2) throw new Error("slipped");
        })
        .end();
      await harness.work("pod-1", [clumsy]);
      const { runId } = await harness.start(clumsy, null);
      await harness.doing(runId, "retrying");
      await harness.cancel(runId);
      expect(await harness.ended(runId)).toMatchObject({ status: "completed" });
      expect(tries).toBe(2);
    });
  });
}
