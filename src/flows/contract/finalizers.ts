import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { abort } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import { releaseStatement, holding, openRuns, type RunsHarness, soon } from "./harness.ts";
import { cancel, unrecoverable } from "../decide/thrown.ts";

/** Every way in which a run can end, and what its finalizers are told of it. */
const endings = {
  "it has run to its end": { type: "completed", output: { begun: true, made: 1 } },
  "it has handed off": { type: "completed", output: "early" },
  "its attempts are used up": { type: "failed", error: { code: "handler_failed" } },
  "it has aborted": { type: "failed", error: { code: "aborted" } },
  "it can't succeed": { type: "failed", error: { code: "aborted", by: "user" } },
  "no signal came": { type: "failed", error: { code: "timeout" } },
  "a transition took too long": { type: "failed", error: { code: "timeout" } },
  "a child has failed": { type: "failed", error: { code: "dependency_failed" } },
  "what it was to run after has failed": { type: "failed", error: { code: "dependency_failed" } },
  "its pods have died": { type: "failed", error: { code: "pod_died" } },
  "it has cancelled itself": { type: "cancelled", reason: "enough" },
  "a caller has cancelled it": { type: "cancelled", reason: null },
} as const;
type Ending = keyof typeof endings;

/** What finalizers are promised on every store. */
export function finalizersContract(kind: StoreKind): void {
  describe(`finalizers on ${kind.name}`, () => {
    let harness: RunsHarness;
    let calls: string[];
    beforeEach(async () => {
      harness = await openRuns(kind);
      calls = [];
    });
    afterEach(() => harness.close());

    const sick = flow<null>("sick", { version: 1 })
      .to("be", () => {
        throw abort("ill");
      })
      .end();

    const endingIn = (how: Ending) => {
      const begin = flow("ends", { version: 1, input: z.string(), attempts: 2, backoff: soon });
      const begun = begin.to("begin", () => ({ begun: true }));
      if (how === "no signal came") return begun.signal("word", { timeoutMs: 10 });
      if (how === "a child has failed") return begun.children("each", () => [[sick, null]]);
      return begun.to("work", { timeoutMs: 20 }, async ({ handoff }) => {
        switch (how) {
          case "it has handed off":
            return handoff("early");
          case "its attempts are used up":
            throw new Error("again");
          case "it has aborted":
            throw abort("no");
          case "it can't succeed":
            throw unrecoverable("no such thing", { by: "user" });
          case "a transition took too long":
            return new Promise<undefined>(() => {});
          case "it has cancelled itself":
            throw cancel("enough");
          case "it has run to its end":
          case "what it was to run after has failed":
          case "its pods have died":
          case "a caller has cancelled it":
            return { made: 1 };
        }
      });
    };

    test.each(Object.keys(endings) as Ending[])(
      "run before a run ends, in their order and once: %s",
      async (how) => {
        const expected = endings[how];
        const outcomes: unknown[] = [];
        const statuses: string[] = [];
        const note = async (given: { transition: string; runId: string; outcome: unknown }) => {
          calls.push(given.transition);
          outcomes.push(given.outcome);
          statuses.push((await harness.view(given.runId)).status);
        };
        const ends = (endingIn(how) as ReturnType<typeof begunChain>)
          .finally("one", note)
          .finally("two", note)
          .end();
        const predecessor = await harness.start(sick, null);
        const isAfter = how === "what it was to run after has failed";
        const options = isAfter ? { after: [predecessor.runId] } : {};
        const { runId } = await harness.start(ends, "x", options);
        if (how === "a caller has cancelled it") await harness.cancel(runId);
        if (how === "its pods have died") {
          for (let deaths = 0; deaths < 4; deaths++) await harness.die(runId);
        }
        await harness.work("pod-1", [ends, sick]);
        const waited = harness.wait(runId).then(
          () => calls.push("ended"),
          () => calls.push("ended"),
        );
        const run = await harness.ended(runId);
        await harness.queue.outcome(waited);
        expect(calls).toEqual(["one", "two", "ended"]);
        expect(statuses).toEqual(["open", "open"]);
        expect(outcomes).toEqual([outcomes[0], outcomes[0]]);
        expect(outcomes[0]).toMatchObject(expected);
        expect(run).toMatchObject({ status: expected.type, intent: expected.type });
        expect((await harness.noted(runId)).slice(-3)).toEqual([
          "complete one",
          "complete two",
          "finish",
        ]);
      },
    );

    test.each(["its time", "a cancel"])(
      "run in the claim of the transition that was aborted by %s",
      async (why) => {
        const stuck = flow<null>("stuck", { version: 1, attempts: 1 })
          .to("work", { timeoutMs: why === "its time" ? 20 : 60_000 }, ({ signal }) => {
            calls.push("work");
            const { promise, reject } = Promise.withResolvers<undefined>();
            signal.addEventListener("abort", () => reject(signal.reason as Error));
            return promise;
          })
          .finally("tidy", () => void calls.push("tidy"))
          .end();
        await harness.work("pod-1", [stuck]);
        const { runId } = await harness.start(stuck, null);
        await harness.queue.until("the work", () => calls.length > 0);
        if (why === "a cancel") await harness.cancel(runId);
        const status = why === "a cancel" ? "cancelled" : "failed";
        expect(await harness.ended(runId)).toMatchObject({ status });
        expect(calls).toEqual(["work", "tidy"]);
        expect((await harness.queue.row(runId))["claim_token"]).toBe(1);
      },
    );

    test("where the input is wrong nothing has begun, and those that would get it are noted", async () => {
      const strict = flow("strict", { version: 1, input: z.object({ size: z.number() }) })
        .to("work", () => void calls.push("work"))
        .finally("one", () => void calls.push("one"))
        .end();
      await harness.work("pod-1", [strict]);
      const { runId } = await harness.start("strict", { size: "large" });
      expect(await harness.ended(runId)).toMatchObject({
        status: "failed",
        error: { code: "invalid_input" },
      });
      expect(calls).toEqual([]);
      expect(await harness.noted(runId)).toEqual(["start", "error work", "error one", "finish"]);
    });

    test("without any, a run ends in the write that decides how", async () => {
      const short = flow("short", { version: 1 })
        .to("only", () => ({ made: 1 }))
        .end();
      const held = holding(harness.database, releaseStatement);
      await harness.work("pod-1", [short], { database: held.database });
      const { runId } = await harness.start(short, null);
      await harness.queue.until("the end", () => held.reached);
      expect(await harness.noted(runId)).toEqual([]);
      held.letGo();
      expect(await harness.ended(runId)).toMatchObject({
        status: "completed",
        output: { made: 1 },
      });
    });
  });
}

function begunChain() {
  return flow("ends", { version: 1, input: z.string() }).to("begin", () => ({ begun: true }));
}
