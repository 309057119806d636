import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { type Flow, flow } from "../flow.ts";
import { openRuns, type RunsHarness } from "./harness.ts";

/** What holds when pods are taken for dead, and when answers are lost, on every store. */
export function fencesContract(kind: StoreKind): void {
  describe(`fences of runs on ${kind.name}`, () => {
    let runs: RunsHarness;
    beforeEach(async () => {
      runs = await openRuns(kind);
    });
    afterEach(() => runs.close());

    /** A flow whose second transition ends when the test says so. */
    const gated = () => {
      const calls: string[] = [];
      const ends: ((value: { two: string }) => void)[] = [];
      const made: Flow = flow("gated", { version: 1, backoff: { baseMs: 0 } })
        .to("one", () => {
          calls.push("one");
          return { one: 1 };
        })
        .to("two", () => {
          calls.push("two");
          return new Promise<{ two: string }>((resolve) => ends.push(resolve));
        })
        .to("three", ({ state }) => {
          calls.push(`three ${state.two}`);
        })
        .end();
      return { made, calls, ends };
    };
    // Nothing looks at what is held while a pod is paused.
    const paused = { pollMs: 1_000_000 };

    test("a pod that was taken for dead, and comes back before another has claimed, may write; its claim is gone", async () => {
      const { made, calls, ends } = gated();
      const first = await runs.pod("pod-1", [made], paused);
      const run = await runs.start(made, null);
      await runs.until("the second transition", () => ends.length === 1);
      expect(await runs.recoverFrom("pod-1")).toBe(1);
      expect(await runs.get(run.runId)).toMatchObject({ at: "two", deaths: 1 });
      ends[0]!({ two: "of the first" });
      expect(await runs.ended(run)).toMatchObject({ output: { one: 1, two: "of the first" } });
      expect(calls).toEqual(["one", "two", "three of the first"]);
      expect(first.running).toBe(0);
      expect(await runs.noted(run)).toEqual([
        "start",
        "complete one",
        "pod_died",
        "complete two",
        "complete three",
        "finish",
      ]);
      // The next transition was claimed anew.
      expect((await runs.queue.row(run.runId))["claim_token"]).toBe(2);
    });

    test("one that comes back after another has claimed stores nothing, and what it runs is aborted", async () => {
      const { made, calls, ends } = gated();
      const first = await runs.pod("pod-1", [made], paused);
      const run = await runs.start(made, null);
      await runs.until("the second transition", () => ends.length === 1);
      await runs.recoverFrom("pod-1");
      await runs.pod("pod-2", [made]);
      await runs.until("it runs again", () => ends.length === 2);
      ends[0]!({ two: "of the first" });
      await runs.until("the first is done with it", () => first.running === 0);
      expect(await runs.get(run.runId)).toMatchObject({ at: "two", state: { one: 1 } });
      ends[1]!({ two: "of the second" });
      expect(await runs.ended(run)).toMatchObject({ output: { one: 1, two: "of the second" } });
      expect(calls).toEqual(["one", "two", "two", "three of the second"]);
      const history = await runs.history(run.runId);
      const completed = history.filter(({ type }) => type === "complete");
      expect(completed.map(({ podId }) => podId)).toEqual(["pod-1", "pod-2", "pod-2"]);
    });

    /** A flow of one transition, whose attempts end when the test says so. */
    const single = () => {
      const attempts: { fails: () => void; ends: () => void }[] = [];
      const made: Flow = flow("single", { version: 1, backoff: { baseMs: 60_000, jitter: 0 } })
        .to("one", () => {
          return new Promise<{ by: number }>((resolve, reject) => {
            const by = attempts.length + 1;
            const fails = () => reject(new Error("too late"));
            attempts.push({ fails, ends: () => resolve({ by }) });
          });
        })
        .end();
      return { made, attempts };
    };

    test.each(["fails", "ends"] as const)(
      "what %s on a pod that another has claimed it from leaves no trace",
      async (how) => {
        const { made, attempts } = single();
        const first = await runs.pod("pod-1", [made], paused);
        const run = await runs.start(made, null);
        await runs.until("it runs", () => attempts.length === 1);
        await runs.recoverFrom("pod-1");
        await runs.pod("pod-2", [made]);
        await runs.until("it runs again", () => attempts.length === 2);
        attempts[0]![how]();
        await runs.until("the first is done with it", () => first.running === 0);
        expect(await runs.get(run.runId)).toMatchObject({
          attempt: 1,
          error: null,
          doing: { type: "running", podId: "pod-2" },
        });
        attempts[1]!.ends();
        expect(await runs.ended(run)).toMatchObject({ output: { by: 2 } });
        expect(await runs.noted(run)).toEqual(["pod_died", "start", "complete one", "finish"]);
      },
    );

    test("what fails or ends on a pod that was taken for dead counts, where no other pod has claimed it since", async () => {
      const { made, attempts } = single();
      await runs.pod("pod-1", [made], paused);
      const failing = await runs.start(made, null);
      await runs.until("it runs", () => attempts.length === 1);
      await runs.recoverFrom("pod-1");
      attempts[0]!.fails();
      expect(await runs.doing(failing, "retrying")).toMatchObject({ attempt: 2, deaths: 1 });
      const ending = await runs.start(made, null);
      await runs.until("it runs", () => attempts.length === 2);
      await runs.recoverFrom("pod-1");
      attempts[1]!.ends();
      expect(await runs.ended(ending)).toMatchObject({ output: { by: 2 } });
    });

    test("a pod that learns that another has its run leaves what it runs at once", async () => {
      const { made, ends } = gated();
      const first = await runs.pod("pod-1", [made], { pollMs: 50 });
      const run = await runs.start(made, null);
      await runs.until("the second transition", () => ends.length === 1);
      await runs.recoverFrom("pod-1");
      await runs.pod("pod-2", [made]);
      await runs.until("it runs again", () => ends.length === 2);
      await runs.until("the first has left it", () => first.running === 0, { stepMs: 10 });
      ends[1]!({ two: "of the second" });
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
    });

    /** Goes through every kind of write: commits, retries, snoozes, sleeps, finalizers, the end. */
    const everything = (calls: string[]): Flow =>
      flow("everything", { version: 1, backoff: { baseMs: 0 } })
        .to("one", () => {
          calls.push("one");
          return { one: 1 };
        })
        .to("fails", ({ attempt }) => {
          calls.push(`fails ${attempt}`);
          if (attempt === 1) throw new Error("once");
        })
        .sleep("nap", 1)
        .to("last", () => void calls.push("last"))
        .finally(() => void calls.push("finally"))
        .end();
    const once = ["one", "fails 1", "fails 2", "last", "finally"];
    const noted = [
      "start",
      "complete one",
      "error fails",
      "complete fails",
      "park nap",
      "complete nap",
      "complete last",
      "complete finally",
      "finish",
    ];

    test("where the answer to every write is lost, each transition is stored once and runs once", async () => {
      const calls: string[] = [];
      const made = everything(calls);
      let lost = 0;
      let isLost = false;
      // Every first answer is lost; the one to the send that follows it comes.
      const database = runs.forgetful(() => {
        isLost = !isLost;
        if (isLost) lost++;
        return isLost;
      });
      await runs.pod("pod-1", [made], { database });
      const run = await runs.start(made, null);
      expect(await runs.ended(run)).toMatchObject({ status: "completed", output: { one: 1 } });
      expect(calls).toEqual(once);
      expect(await runs.noted(run)).toEqual(noted);
      expect(lost).toBeGreaterThanOrEqual(6);
    });

    test.each(["store_busy", "store_unavailable", "store_full"] as const)(
      "where the store refuses every write once with %s, each transition runs once",
      async (code) => {
        const calls: string[] = [];
        const made = everything(calls);
        let refuses = false;
        const database: Database = {
          ...runs.database,
          async write(statements, options) {
            if (runs.writesRuns(statements)) {
              refuses = !refuses;
              if (refuses) throw new FlotillaError(code, code);
            }
            return runs.database.write(statements, options);
          },
        };
        await runs.pod("pod-1", [made], { database });
        const run = await runs.start(made, null);
        expect(await runs.ended(run)).toMatchObject({ status: "completed" });
        expect(calls).toEqual(once);
        expect(await runs.noted(run)).toEqual(noted);
      },
    );

    test("what the store refuses for good is the fault of what was to be stored: the run fails, others go on", async () => {
      const calls: string[] = [];
      const made = flow<string>("refused", { version: 1 })
        .to("one", ({ input }) => ({ one: input }))
        .finally(({ outcome }) => void calls.push(outcome.type))
        .end();
      const database: Database = {
        ...runs.database,
        async write(statements, options) {
          const isRefused =
            runs.writesRuns(statements) && JSON.stringify(statements).includes("poison");
          if (isRefused) throw new FlotillaError("internal", "no such letter in this encoding");
          return runs.database.write(statements, options);
        },
      };
      const poisoned = await runs.start(made, "poison");
      const others = [await runs.start(made, "a"), await runs.start(made, "b")];
      await runs.pod("pod-1", [made], { database });
      expect(await runs.ended(poisoned)).toMatchObject({
        status: "failed",
        state: {},
        error: { code: "payload_not_storable" },
      });
      for (const other of others) {
        expect(await runs.ended(other)).toMatchObject({ status: "completed" });
      }
      expect(calls.toSorted()).toEqual(["completed", "completed", "failed"]);
    });

    test("four pods that die at the same transition lead the run to its finalizers, and don't run it again", async () => {
      const { calls, ends } = gated();
      const after: string[] = [];
      const dying: Flow = flow("dying", { version: 1 })
        .to("one", () => ({ one: 1 }))
        .to("two", () => {
          calls.push("two");
          return new Promise<{ two: string }>((resolve) => ends.push(resolve));
        })
        .finally(({ outcome, state }) => {
          after.push(`${outcome.type} ${state.one}`);
        })
        .end();
      const run = await runs.start(dying, null);
      for (let death = 1; death <= 4; death++) {
        await runs.pod(`pod-${death}`, [dying], paused);
        await runs.until(`death ${death}`, () => ends.length === death);
        const { at, deaths, attempt } = (await runs.get(run.runId))!;
        expect({ at, deaths, attempt }).toEqual({ at: "two", deaths: death - 1, attempt: 1 });
        await runs.recoverFrom(`pod-${death}`);
      }
      await runs.pod("pod-5", [dying]);
      expect(await runs.ended(run)).toMatchObject({
        status: "failed",
        state: { one: 1 },
        error: { code: "pod_died" },
      });
      expect(calls).toEqual(["two", "two", "two", "two"]);
      expect(after).toEqual(["failed 1"]);
    });

    test("deaths belong to the transition: the next one has seen none", async () => {
      const ends: (() => void)[] = [];
      const gate = () => new Promise<void>((resolve) => ends.push(resolve));
      const two = flow("two", { version: 1 }).to("one", gate).to("other", gate).end();
      await runs.pod("pod-1", [two], paused);
      const run = await runs.start(two, null);
      await runs.until("it runs", () => ends.length === 1);
      await runs.recoverFrom("pod-1");
      await runs.pod("pod-2", [two]);
      await runs.until("it runs again", () => ends.length === 2);
      expect(await runs.get(run.runId)).toMatchObject({ deaths: 1 });
      ends[1]!();
      await runs.until("the other", () => ends.length === 3);
      expect(await runs.get(run.runId)).toMatchObject({ at: "other", deaths: 0 });
      ends[2]!();
      await runs.ended(run);
    });
  });
}
