import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { readTaskStates } from "../../tasks/sql/finish.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import {
  releaseStatement,
  holding,
  signalReadStatement,
  openRuns,
  type RunsHarness,
} from "./harness.ts";
import { cancel } from "../decide/thrown.ts";

const hourMs = 3_600_000;

/** What the cancel of a run is promised on every store. */
export function cancelContract(kind: StoreKind): void {
  describe(`cancelling runs on ${kind.name}`, () => {
    let harness: RunsHarness;
    let calls: string[];
    beforeEach(async () => {
      harness = await openRuns(kind);
      calls = [];
    });
    afterEach(() => harness.close());

    const simple = flow("simple", { version: 1 })
      .to("work", () => void calls.push("work"))
      .finally("tidy", ({ outcome }) => void calls.push(`tidy ${outcome.type}`))
      .end();

    test("before a pod has claimed it, nothing of it runs but its finalizers", async () => {
      const { runId } = await harness.start(simple, null);
      expect(await harness.cancel(runId)).toBe("cancelling");
      expect(await harness.view(runId)).toMatchObject({ status: "open", cancelRequested: true });
      await harness.work("pod-1", [simple]);
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled", error: null });
      expect(calls).toEqual(["tidy cancelled"]);
      expect(await harness.noted(runId)).toEqual([
        "cancel_requested",
        "start",
        "cancel work",
        "complete tidy",
        "finish",
      ]);
    });

    test("one that is to start later doesn't wait for that", async () => {
      const { runId } = await harness.start(simple, null, { delayMs: hourMs });
      expect(await harness.view(runId)).toMatchObject({ doing: { type: "delayed" } });
      await harness.cancel(runId);
      await harness.work("pod-1", [simple]);
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled" });
      expect(calls).toEqual(["tidy cancelled"]);
    });

    test("one that is to start after another doesn't wait for that", async () => {
      const other = await harness.queue.enqueue("nobody", 1);
      const { runId } = await harness.start(simple, null, { after: [other.taskId] });
      await harness.cancel(runId);
      await harness.work("pod-1", [simple]);
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled" });
      expect(await harness.queue.get(other.taskId)).toMatchObject({ status: "pending" });
    });

    const child = flow<null>("child", { version: 1 }).signal("never").end();
    const start = () => flow("parked", { version: 1 });
    const tidy = () => void calls.push("tidy");
    const never = () => {
      throw new Error("not yet");
    };
    const backoff = { baseMs: hourMs, maxMs: hourMs, jitter: 0 };
    const parked = {
      sleeping: () => start().sleep("wait", hourMs).finally("tidy", tidy).end(),
      waiting_for_signal: () => start().signal("wait").finally("tidy", tidy).end(),
      "waiting_for_signal for a time": () =>
        start().signal("wait", { timeoutMs: hourMs }).finally("tidy", tidy).end(),
      waiting_for_children: () =>
        start()
          .children("wait", () => [[child, null]])
          .finally("tidy", tidy)
          .end(),
      retrying: () => start().to("wait", { backoff }, never).finally("tidy", tidy).end(),
    } as const;

    test.each(Object.keys(parked) as (keyof typeof parked)[])(
      "one that is %s is woken for it",
      async (how) => {
        const waits = parked[how]();
        const [doing] = how.split(" ");
        await harness.work("pod-1", [waits]);
        const { runId } = await harness.start(waits, null);
        await harness.doing(runId, doing as "sleeping");
        await harness.folds();
        expect(await harness.cancel(runId)).toBe("cancelling");
        const run = await harness.ended(runId);
        expect(run).toMatchObject({ status: "cancelled", doing: null });
        expect(calls).toEqual(["tidy"]);
        expect((await harness.noted(runId)).slice(-3)).toEqual([
          "cancel wait",
          "complete tidy",
          "finish",
        ]);
      },
    );

    test("one behind a full queue ends when it is its turn, and nothing of it runs", async () => {
      const queue = { name: "narrow", limit: 1 };
      let letGo = () => {};
      const narrow = flow<number>("narrow", { version: 1, queue })
        .to("work", ({ input }) => {
          calls.push(`work ${input}`);
          return new Promise<void>((resolve) => (letGo = resolve));
        })
        .finally("tidy", ({ input, outcome }) => void calls.push(`tidy ${input} ${outcome.type}`))
        .end();
      await harness.work("pod-1", [narrow]);
      const first = await harness.start(narrow, 1);
      await harness.queue.until("the first", () => calls.length === 1);
      const second = await harness.start(narrow, 2);
      await harness.doing(second.runId, "waiting_for_room");
      expect(await harness.cancel(second.runId)).toBe("cancelling");
      letGo();
      expect(await harness.ended(second.runId)).toMatchObject({ status: "cancelled" });
      expect(await harness.view(first.runId)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["work 1", "tidy 1 completed", "tidy 2 cancelled"]);
    });

    test("is one however often it is called, and an error for what isn't there", async () => {
      const { runId } = await harness.start(simple, null);
      await harness.cancel(runId);
      expect(await harness.cancel(runId)).toBe("cancelling");
      await harness.work("pod-1", [simple]);
      await harness.ended(runId);
      expect(await harness.cancel(runId)).toBe("cancelled");
      const asked = (await harness.noted(runId)).filter((each) => each === "cancel_requested");
      expect(asked).toHaveLength(1);
      await expect(harness.cancel("nobody")).rejects.toMatchObject({ code: "not_found" });
    });

    test("a transition can cancel its own run, with a reason", async () => {
      const own = flow("own", { version: 1 })
        .to("work", () => ({ made: 1 }))
        .to("doubt", () => {
          throw cancel("nobody wants it any more");
        })
        .finally("tidy", ({ outcome }) => void calls.push(JSON.stringify(outcome)))
        .end();
      await harness.work("pod-1", [own]);
      const { runId } = await harness.start(own, null);
      expect(await harness.ended(runId)).toMatchObject({
        status: "cancelled",
        state: { made: 1 },
        error: { code: "cancelled", message: "nobody wants it any more" },
      });
      expect(calls).toEqual([`{"type":"cancelled","reason":"nobody wants it any more"}`]);
    });

    test("one that comes while the run is being parked isn't missed", async () => {
      const held = holding(harness.database, releaseStatement);
      const waits = flow("waits", { version: 1 }).signal("word").end();
      await harness.work("pod-1", [waits], { database: held.database, pollMs: 60_000 });
      const { runId } = await harness.start(waits, null);
      await harness.queue.until("the write that parks it", () => held.reached);
      await harness.cancel(runId);
      held.letGo();
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled" });
    });

    test("one that the pod learns of while it reads signals isn't missed", async () => {
      const held = holding(harness.database, signalReadStatement, "answer");
      const waits = flow("waits", { version: 1 }).signal("word").end();
      let isReported = false;
      const listening: Database = {
        ...held.database,
        async read(statement) {
          const rows = await held.database.read(statement);
          const isPoll = statement.strings === readTaskStates([]).strings;
          if (isPoll && rows.some((row) => Number(row["cancel_requested"]) === 1))
            isReported = true;
          return rows;
        },
      };
      await harness.work("pod-1", [waits], { database: listening });
      const { runId } = await harness.start(waits, null);
      await harness.queue.until("the look", () => held.reached);
      await harness.cancel(runId);
      await harness.queue.until("the poll that tells of it", () => isReported);
      held.letGo();
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled" });
    });

    test("one that was cancelled and is started over goes on where it was stopped", async () => {
      const steps = flow("steps", { version: 1 })
        .to("one", () => void calls.push("one"))
        .signal("two")
        .to("three", () => void calls.push("three"))
        .finally("tidy", ({ outcome }) => void calls.push(outcome.type))
        .end();
      await harness.work("pod-1", [steps]);
      const { runId } = await harness.start(steps, null);
      await harness.doing(runId, "waiting_for_signal");
      await harness.cancel(runId);
      await harness.ended(runId);
      await harness.resume(runId);
      await harness.doing(runId, "waiting_for_signal");
      expect(await harness.view(runId)).toMatchObject({ cancelRequested: false, intent: null });
      await harness.folds();
      await harness.signal(runId, "two", 2);
      expect(await harness.ended(runId)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["one", "cancelled", "three", "completed"]);
    });
  });
}
