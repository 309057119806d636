import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { seededRandom } from "../../base/random.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { createFinishWriter } from "../finish/finish-writer.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import type { Claim } from "../rows.ts";
import { decideFinish } from "../finish/outcome.ts";
import { finishTasks, noteFinishes, saveProgress } from "../sql/finish.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { AttemptOutcome } from "../model.ts";

const policy = { attempts: 3, backoff: { baseMs: 1_000, jitter: 0 } };
const returned: AttemptOutcome = { type: "returned", result: `"done"` };
const threw: AttemptOutcome = { type: "threw", thrown: new Error("broken") };

/** What storing the end of an attempt promises on every store. */
export function finishContract(kind: StoreKind): void {
  describe(`finishing on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
      await queue.beat("pod-1", "pod-2");
    });
    afterEach(() => queue.close());

    const decide = (claim: Claim, outcome: AttemptOutcome) =>
      decideFinish(claim, outcome, policy, seededRandom(1));
    /** Stores outcomes as the worker does, and returns how many rows that changed. */
    const finish = async (...pairs: [Claim, AttemptOutcome][]) => {
      const finishes = pairs.map(([claim, outcome]) => decide(claim, outcome));
      const tables = await queue.database.write([
        noteFinishes("pod-1", finishes),
        finishTasks(finishes),
      ]);
      return tables.at(-1)!.length;
    };
    const claimOne = async (input: unknown = 1) => {
      const { taskId } = await queue.enqueue("a", input);
      const [claim] = await queue.claim("pod-1", ["a"]);
      return { taskId, claim: claim! };
    };
    const snapshot = async (taskId: string) => ({
      row: await queue.row(taskId),
      events: await queue.events(taskId),
    });

    test("stores a result, and the row keeps who made it", async () => {
      const { taskId, claim } = await claimOne();
      expect(await finish([claim, returned])).toBe(1);
      expect(await queue.get(taskId)).toMatchObject({ status: "completed", result: "done" });
      expect(await queue.row(taskId)).toMatchObject({ claimed_by: "pod-1", claim_token: 1 });
      expect(await queue.events(taskId)).toEqual([]);
    });

    test("parks a failed attempt until its time, with a higher token and a note", async () => {
      const { taskId, claim } = await claimOne();
      await finish([claim, threw]);
      const row = await queue.row(taskId);
      expect(row).toMatchObject({
        status: "pending",
        retry_count: 1,
        claim_token: 2,
        claimed_by: null,
        claim_call: null,
        parked: 1,
        deaths: 0,
      });
      expect(Number(row["run_at"]) - Number(row["last_update"])).toBe(1_000);
      expect(await queue.events(taskId)).toMatchObject([
        { seq: 1, type: "retry", attempt: 1, podId: "pod-1", detail: { message: "broken" } },
      ]);
    });

    test("gives an interrupted attempt back uncounted, to be claimed at once", async () => {
      const { taskId, claim } = await claimOne();
      await finish([claim, { type: "interrupted" }]);
      expect(await queue.row(taskId)).toMatchObject({
        status: "pending",
        retry_count: 0,
        parked: 0,
      });
      expect(await queue.claim("pod-2", ["a"])).toMatchObject([{ taskId, token: 3, failures: 0 }]);
    });

    test("changes nothing with a token that has passed, whatever the ending", async () => {
      const { taskId, claim: old } = await claimOne();
      await queue.recover("pod-1", [old]);
      const [current] = await queue.claim("pod-2", ["a"]);
      expect(current!.token).toBeGreaterThan(old.token);
      const before = await snapshot(taskId);
      for (const ending of [
        returned,
        threw,
        { type: "cancelled" },
        { type: "interrupted" },
      ] as const) {
        expect(await finish([old, ending])).toBe(0);
      }
      await queue.database.write([
        saveProgress([{ taskId, token: old.token, runSeq: 0, value: "1" }]),
      ]);
      expect(await snapshot(taskId)).toEqual(before);
      expect(await finish([current!, returned])).toBe(1);
    });

    test("changes nothing on a row that has ended, not even with its own token", async () => {
      for (const ending of [returned, { type: "cancelled" }] as const) {
        const { taskId, claim } = await claimOne();
        await finish([claim, ending]);
        const before = await snapshot(taskId);
        expect(await finish([claim, threw])).toBe(0);
        expect(await finish([claim, { type: "interrupted" }])).toBe(0);
        expect(await snapshot(taskId)).toEqual(before);
      }
    });

    test("still counts for a pod that was taken for dead, until another pod has the task", async () => {
      const { taskId, claim } = await claimOne();
      await queue.recover("pod-1", [claim]);
      expect(await queue.row(taskId)).toMatchObject({
        status: "pending",
        deaths: 1,
        claim_token: 1,
      });
      expect(await finish([claim, returned])).toBe(1);
      expect(await queue.get(taskId)).toMatchObject({ status: "completed", result: "done" });
    });

    test("doesn't park a row that was cancelled meanwhile, but a result or a failure stands", async () => {
      const { taskId, claim } = await claimOne();
      expect(await queue.cancel(taskId)).toBe("cancelling");
      expect(await finish([claim, threw])).toBe(0);
      expect(await finish([claim, { type: "interrupted" }])).toBe(0);
      expect(await queue.row(taskId)).toMatchObject({ status: "claimed", claim_token: 1, wake: 1 });
      expect(await finish([claim, returned])).toBe(1);
    });

    test("judges each of a batch by its own conditions", async () => {
      await queue.enqueueMany(
        "a",
        Array.from({ length: 60 }, (_, at) => at),
      );
      const claims = await queue.claim("pod-1", ["a"], 60);
      const stale = claims.slice(0, 20);
      await queue.recover("pod-1", stale);
      await queue.claim("pod-2", ["a"], 20);
      const endings = claims.map((claim, at): [Claim, AttemptOutcome] => [
        claim,
        at % 2 ? threw : returned,
      ]);
      expect(await finish(...endings)).toBe(40);
      const { byStatus } = await queue.stats();
      expect(byStatus).toMatchObject({ claimed: 20, completed: 20, pending: 20 });
    });

    test("distinguishes stored, lost and woken, also when answers are lost", async () => {
      const losses = fc.array(fc.constantFrom("none", "before", "after"), { maxLength: 4 });
      await fc.assert(
        fc.asyncProperty(
          losses,
          fc.constantFrom("mine", "taken", "cancelled"),
          fc.boolean(),
          async (lost, fate, fails) => {
            const { taskId, claim } = await claimOne();
            if (fate === "taken") {
              await queue.recover("pod-1", [claim]);
              await queue.claim("pod-2", ["a"], 1);
            }
            if (fate === "cancelled") await queue.cancel(taskId);
            const stop = new AbortController();
            const { finish: store } = createFinishWriter({
              database: losing(queue.database, lost),
              clock: queue.clock,
              random: queue.random,
              podId: "pod-1",
              signal: stop.signal,
            });
            const storing = store(decide(claim, fails ? threw : returned));
            const outcome = await queue.outcome(storing, { stepMs: 50 });
            const { status, retry_count } = await queue.row(taskId);
            // A retry whose answer was lost has raised the token itself, so it can't be told from a loss.
            const unsure = fails && lost.includes("after");
            const expected =
              fate === "taken"
                ? ["lost", "claimed", 0]
                : fate === "cancelled" && fails
                  ? ["woken", "claimed", 0]
                  : [
                      unsure ? outcome.type : "stored",
                      fails ? "pending" : "completed",
                      fails ? 1 : 0,
                    ];
            expect([outcome.type, status, retry_count]).toEqual(expected);
          },
        ),
        { numRuns: 25 },
      );
    });

    test("stores progress of the current claim only, and the newest counts", async () => {
      const { taskId, claim } = await claimOne();
      await queue.database.write([
        saveProgress([{ taskId, token: claim.token, runSeq: 0, value: `{"done":1}` }]),
      ]);
      await queue.database.write([
        saveProgress([{ taskId, token: claim.token, runSeq: 0, value: `{"done":2}` }]),
      ]);
      expect((await queue.get(taskId))!.progress).toEqual({ done: 2 });
      await finish([claim, returned]);
      await queue.database.write([
        saveProgress([{ taskId, token: claim.token, runSeq: 0, value: "3" }]),
      ]);
      expect((await queue.get(taskId))!.progress).toEqual({ done: 2 });
    });
  });
}

/** The same database, whose first writes are lost on the way there or on the way back. */
function losing(database: Database, losses: readonly string[]): Database {
  const left = [...losses];
  const lost = new FlotillaError("unknown_outcome", "lost");
  return {
    ...database,
    async write(statements) {
      const loss = left.shift();
      if (loss === "before") throw lost;
      const answer = await database.write(statements);
      if (loss === "after") throw lost;
      return answer;
    },
  };
}
