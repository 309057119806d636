import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { silentLogger } from "../../base/log.ts";
import { createDeadLetters } from "../../dead-letters/dead-letters.ts";
import { createDeadLetterLeader } from "../../dead-letters/leader.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table, type TableName } from "../../store/sql.ts";
import { type Flow, flow } from "../flow.ts";
import { openRuns, type RunsHarness } from "./harness.ts";

/** How runs go on that were stopped, interrupted or ended, on every store. */
export function resumingContract(kind: StoreKind): void {
  describe(`going on with runs on ${kind.name}`, () => {
    let runs: RunsHarness;
    let calls: string[];
    beforeEach(async () => {
      runs = await openRuns(kind);
      calls = [];
    });
    afterEach(() => runs.close());

    /** Fails at its second transition for as long as is said. */
    const failing = (fails: () => boolean): Flow =>
      flow("failing", { version: 1, attempts: 1 })
        .to("one", () => {
          calls.push("one");
          return { one: 1 };
        })
        .to("two", ({ attempt, state }) => {
          calls.push(`two ${attempt} ${state.one}`);
          if (fails()) throw new Error("no");
          return { two: 2 };
        })
        .finally(({ outcome }) => void calls.push(outcome.type))
        .end();
    const again: [string, (runId: string) => Promise<unknown>][] = [
      ["resume", (runId) => runs.resume(runId)],
      ["a retry", (runId) => runs.queue.retry(runId)],
      [
        "a redrive",
        async () => {
          const { database, clock, random, ids } = runs.queue;
          const parts = { database, clock, random, ids, podId: "pod-1", log: silentLogger };
          const letters = createDeadLetters(parts);
          const lead = createDeadLetterLeader({ ...parts, onTaken: runs.wake });
          const { redriveId } = await letters.redrive({ name: "failing" });
          await runs.until("the redrive", async () => {
            lead.beat(true);
            // It may be open for no more than a moment.
            return (await letters.getRedrive(redriveId))!.taken > 0;
          });
          await lead.stop();
          letters.close();
        },
      ],
    ];

    test.each(again)(
      "%s of a failed run goes on where it stopped, with its state, and finalizers run again",
      async (_, goOn) => {
        let fails = true;
        await runs.pod("pod-1", [failing(() => fails)]);
        const run = await runs.start("failing", null);
        expect(await runs.ended(run)).toMatchObject({ status: "failed", state: { one: 1 } });
        fails = false;
        await goOn(run.runId);
        await runs.seen(run, "its end", ({ status }) => status === "completed");
        expect(await runs.get(run.runId)).toMatchObject({
          output: { one: 1, two: 2 },
          error: null,
        });
        expect(calls).toEqual(["one", "two 1 1", "failed", "two 1 1", "completed"]);
      },
    );

    test("one that was cancelled goes on where it stopped, and isn't cancelled again", async () => {
      let wait = true;
      const cancelled = flow("cancelled", { version: 1 })
        .to("one", () => ({ one: 1 }))
        .sleep("nap", () => (wait ? 60_000 : 0))
        .to("two", () => ({ two: 2 }))
        .end();
      await runs.pod("pod-1", [cancelled]);
      const run = await runs.start(cancelled, null);
      await runs.doing(run, "sleeping");
      expect(await runs.cancel(run.runId)).toBe("cancelling");
      expect(await runs.ended(run)).toMatchObject({ status: "cancelled", state: { one: 1 } });
      expect(await runs.cancel(run.runId)).toBe("cancelled");
      wait = false;
      await runs.resume(run.runId);
      await runs.seen(run, "its end", ({ status }) => status === "completed");
    });

    test("leftovers of a pod that is gone are completed by the next that starts, and what was done isn't done again", async () => {
      const gone = await runs.pod("pod-1", [failing(() => false)], { pollMs: 1_000_000 });
      const hanging = flow("hanging", { version: 1 })
        .to("one", () => {
          calls.push("hanging one");
          return { one: 1 };
        })
        .to("two", () => {
          calls.push("hanging two");
          return calls.filter((call) => call === "hanging two").length > 1
            ? undefined
            : new Promise<void>(() => {});
        })
        .end();
      const dies = await runs.pod("pod-2", [hanging], { graceMs: 10 });
      const run = await runs.start(hanging, null);
      await runs.until("it hangs", () => calls.includes("hanging two"));
      await runs.recoverFrom("pod-2");
      await runs.outcome(dies.stop({ waitMs: 0 }), { stepMs: 10 });
      await runs.pod("pod-3", [hanging]);
      expect(await runs.ended(run)).toMatchObject({ output: { one: 1 } });
      expect(calls).toEqual(["hanging one", "hanging two", "hanging two"]);
      expect(gone.running).toBe(0);
    });

    test("a pod goes on only with the flows that it has", async () => {
      const made = (name: string): Flow =>
        flow(name, { version: 1 })
          .to("one", () => void calls.push(name))
          .end();
      const [one, other] = [await runs.start("one", 1), await runs.start("other", 1)];
      await runs.pod("pod-1", [made("one")]);
      await runs.ended(one);
      await runs.pass(20);
      expect(calls).toEqual(["one"]);
      await runs.pod("pod-2", [made("other")]);
      await runs.ended(other);
    });

    test("a stop gives a run with many short transitions back at the next boundary, uncounted", async () => {
      let steps = 0;
      let stopped: Promise<void> | undefined;
      const step = () => {
        steps++;
        if (steps === 7) stopped = first.stop({ waitMs: 60_000 });
      };
      let chain = flow("long", { version: 1 }).to("step-0", step);
      for (let at = 1; at < 20; at++) chain = chain.to(`step-${at}` as string, step);
      const long = chain.end();
      const first = await runs.pod("pod-1", [long]);
      const run = await runs.start(long, null);
      await runs.until("it is told to stop", () => stopped !== undefined);
      await runs.outcome(stopped!);
      expect(await runs.get(run.runId)).toMatchObject({
        status: "open",
        at: "step-7",
        attempt: 1,
        deaths: 0,
        doing: { type: "ready" },
      });
      expect(steps).toBe(7);
      await runs.pod("pod-2", [long]);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(steps).toBe(20);
    });

    test("a stop interrupts a long transition, which stays where it is, uncounted, with what failed before", async () => {
      const reasons: unknown[] = [];
      const long = flow("long", { version: 1, backoff: { baseMs: 0 } })
        .to("one", () => ({ one: 1 }))
        .to("two", ({ attempt, signal }) => {
          calls.push(`two ${attempt}`);
          if (attempt === 1) throw new Error("once");
          if (reasons.length > 0) return undefined;
          return new Promise<never>((_, reject) => {
            signal.addEventListener("abort", () => {
              reasons.push(signal.reason);
              reject(signal.reason as Error);
            });
          });
        })
        .end();
      const first = await runs.pod("pod-1", [long]);
      const run = await runs.start(long, null);
      await runs.until("it runs", () => calls.length === 2);
      await runs.stop(first, 20);
      expect(reasons).toHaveLength(1);
      expect(await runs.get(run.runId)).toMatchObject({
        at: "two",
        attempt: 2,
        deaths: 0,
        state: { one: 1 },
        doing: { type: "ready" },
        error: { message: "once" },
      });
      await runs.pod("pod-2", [long]);
      expect(await runs.ended(run)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["two 1", "two 2", "two 2"]);
    });

    test("a short transition that is under way when its pod stops is finished and stored", async () => {
      const { promise: finished, resolve: finish } = Promise.withResolvers<void>();
      const short = flow("short", { version: 1 })
        .to("one", () => finished)
        .to("two", () => void calls.push("two"))
        .end();
      const first = await runs.pod("pod-1", [short]);
      const run = await runs.start(short, null);
      await runs.seen(run, "it runs", ({ doing }) => doing?.type === "running");
      await runs.pass(5);
      const stopped = first.stop({ waitMs: 5_000 });
      finish();
      await runs.outcome(stopped);
      expect(await runs.get(run.runId)).toMatchObject({ at: "two", status: "open" });
      expect(calls).toEqual([]);
      await runs.pod("pod-2", [short]);
      await runs.ended(run);
    });

    test("what has ended stays with its whole history until its time is over, then goes with all that belongs to it", async () => {
      const kept = flow("kept", { version: 1 })
        .children("parts", () => [[part, 1]] as const)
        .signal("word")
        .end();
      const part = flow<number>("part", { version: 1 })
        .to("one", () => {})
        .end();
      const run = await runs.start(kept, null);
      await runs.signal(run.runId, "word", "said");
      const pod = await runs.pod("pod-1", [kept, part]);
      await runs.ended(run);
      expect((await runs.history(run.runId)).map(({ type }) => type)).toEqual([
        "start",
        "park",
        "complete",
        "complete",
        "finish",
      ]);
      const counts = async () => {
        const tables: TableName[] = ["task", "task_event", "task_dependency", "task_signal"];
        const found = tables.map(async (name) => {
          const [row] = await runs.database.read(sql`select count(*) as rows from ${table(name)}`);
          return Number(row!["rows"]);
        });
        return Promise.all(found);
      };
      expect((await counts()).every((rows) => rows > 0)).toBe(true);
      await runs.stop(pod);
      await runs.queue.prune({ olderThanMs: 60_000 });
      expect(await runs.get(run.runId)).toMatchObject({ status: "completed" });
      await runs.pass(120_000);
      // What waits for another is forgotten first.
      for (let passes = 0; passes < 3; passes++) await runs.queue.prune({ olderThanMs: 60_000 });
      expect(await counts()).toEqual([0, 0, 0, 0]);
      expect(await runs.get(run.runId)).toBeUndefined();
    });
  });
}
