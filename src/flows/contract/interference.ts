import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort, FlotillaError } from "../../base/errors.ts";
import { rowsOf } from "../../tasks/contract/harness.ts";
import { findNotedWrites, type RunFinish } from "../../tasks/sql/runs.ts";
import { task } from "../../tasks/task.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { flow } from "../flow.ts";
import { releaseStatement, openRuns, type RunsHarness } from "./harness.ts";

/** What others do to the row of a run, or to what it has started, in a moment that doesn't suit it. */
export function interferenceContract(kind: StoreKind): void {
  describe(`runs that others interfere with on ${kind.name}`, () => {
    let harness: RunsHarness;
    beforeEach(async () => {
      harness = await openRuns(kind);
    });
    afterEach(() => harness.close());

    const napper = flow<string>("napper", { version: 1 })
      .to("lie", ({ input }) => ({ where: input }))
      .sleep("nap", 60_000)
      .to("rise", ({ state }) => ({ from: state.where }))
      .end();

    test("a task that is enqueued by a flow's name replaces no run under its key", async () => {
      await harness.work("pod-1", [napper]);
      const { runId } = await harness.start(napper, "bed", { key: "one" });
      await harness.doing(runId, "sleeping");
      const given = { key: "one", onDuplicate: "replace" } as const;
      expect(await harness.queue.enqueue("napper", "sofa", given)).toEqual({
        taskId: runId,
        created: false,
        replaced: false,
      });
      expect(await harness.view(runId)).toMatchObject({ input: "bed", state: { where: "bed" } });
    });

    test("the row of a run that was replaced many times before a pod claimed it has all that the run did", async () => {
      const given = { key: "one", onDuplicate: "replace", delayMs: 60_000 } as const;
      for (let times = 0; times < 250; times++) {
        await harness.queue.enqueue("napper", `bed ${times}`, given);
      }
      const { taskId: runId } = await harness.queue.enqueue("napper", "sofa", {
        ...given,
        delayMs: 0,
      });
      await harness.work("pod-1", [napper]);
      await harness.queue.until("the nap", async () => (await harness.get(runId))?.at === "nap");
      await harness.doing(runId, "sleeping");
      expect((await harness.noted(runId)).filter((each) => each !== "replaced")).toEqual([
        "start",
        "complete lie",
        "park nap",
      ]);
    });

    test("a parent that is cancelled while the inputs of its children are checked starts none of them", async () => {
      const checks: (() => void)[] = [];
      const validate = (value: unknown) =>
        new Promise<{ value: string }>((resolve) => {
          checks.push(() => resolve({ value: value as string }));
        });
      const input = { "~standard": { version: 1, vendor: "test", validate } } as const;
      const slow = flow("slow", { version: 1, input }).signal("word").end();
      const parent = flow("parent", { version: 1 })
        .children("each", () => [[slow, "a"]])
        .end();
      await harness.work("pod-1", [parent]);
      const { runId } = await harness.start(parent, null);
      await harness.queue.until("a check", () => checks.length === 1);
      await harness.cancel(runId);
      // Long enough for the pod to learn of the cancel by itself.
      for (let times = 0; times < 10; times++) {
        await harness.queue.pass(30);
        await harness.view(runId);
      }
      checks[0]!();
      expect(await harness.ended(runId)).toMatchObject({ status: "cancelled" });
      expect(await harness.childrenOf(runId)).toEqual([]);
    });

    const fails = { failed: true };
    /** Its children fail while that is so. */
    const child = flow<string>("child", { version: 1, attempts: 1 })
      .to("be", ({ input }) => {
        if (fails.failed && input.endsWith("bad")) throw new Error("bad");
        return { was: input };
      })
      .end();

    test("a parent that is started over gets what its children gave in their order, also where some are gone", async () => {
      fails.failed = true;
      const parent = flow<string>("parent", { version: 1 })
        .children("each", ({ input }) =>
          ["one bad", "two", "three"].map((name) => [child, `${input} ${name}`] as const),
        )
        .end();
      const inputs = ["a", "b", "c"];
      const started = await Promise.all(inputs.map((input) => harness.start(parent, input)));
      await harness.work("pod-1", [parent, child]);
      for (const { runId } of started) {
        expect(await harness.ended(runId)).toMatchObject({ status: "failed" });
      }
      fails.failed = false;
      for (const [at, { runId }] of started.entries()) {
        const last = (await harness.childrenOf(runId)).at(-1)!;
        await harness.database.write([sql`delete from ${rowsOf} where task_id = ${last.runId}`]);
        await harness.resume(runId);
        const each = ["one bad", "two", "three"].map((name) => ({ was: `${inputs[at]} ${name}` }));
        expect(await harness.ended(runId)).toMatchObject({ output: { each } });
      }
    });

    test("a parent that is started over with fewer children waits for no others", async () => {
      fails.failed = true;
      const parent = flow("parent", { version: 1 })
        .children("each", () =>
          (fails.failed ? ["one", "two bad"] : ["one"]).map((name) => [child, name] as const),
        )
        .end();
      await harness.work("pod-1", [parent, child]);
      const { runId } = await harness.start(parent, null);
      expect(await harness.ended(runId)).toMatchObject({ status: "failed" });
      fails.failed = false;
      await harness.resume(runId);
      expect(await harness.ended(runId)).toMatchObject({ output: { each: [{ was: "one" }] } });
    });

    test("a write whose outcome isn't known, and that is refused when it is sent again, leaves no run behind", async () => {
      const isRefused = { times: 0 };
      const database: Database = {
        ...harness.database,
        async write(statements, options) {
          if (!statements.some(({ strings }) => strings === releaseStatement)) {
            return harness.database.write(statements, options);
          }
          isRefused.times++;
          if (isRefused.times === 1) throw new FlotillaError("unknown_outcome", "no answer");
          if (isRefused.times === 2) throw new FlotillaError("internal", "refused");
          return harness.database.write(statements, options);
        },
      };
      await harness.work("pod-1", [napper], { database });
      const { runId } = await harness.start(napper, "bed");
      await harness.queue.until(
        "the nap",
        async () => (await harness.view(runId)).doing?.type === "sleeping",
        { stepMs: 50 },
      );
      expect(await harness.noted(runId)).toEqual(["start", "complete lie", "park nap"]);
    });

    test("a child that was set aside is cancelled behind its finalizers, when its parent was and a pod can read it", async () => {
      const finals: string[] = [];
      const kid = (version: number) =>
        flow("kid", { version })
          .signal("word")
          .finally(({ outcome }) => void finals.push(outcome.type))
          .end();
      const parent = flow("parent", { version: 1 })
        .children("each", () => [[kid(1), null]])
        .end();
      const first = await harness.work("pod-1", [parent, kid(1)]);
      const { runId } = await harness.start(parent, null);
      const [child] = await harness.childrenAwaited(runId);
      await harness.doing(child!.runId, "waiting_for_signal");
      await harness.queue.outcome(first.stop({ waitMs: 0 }));
      const other = flow("kid", { version: 2 })
        .to("other", () => {})
        .end();
      const second = await harness.work("pod-2", [parent, other]);
      await harness.signal(child!.runId, "word");
      await harness.doing(child!.runId, "set_aside");
      await harness.cancel(runId);
      await harness.ended(runId);
      expect(await harness.view(child!.runId)).toMatchObject({
        cancelRequested: true,
        doing: { type: "set_aside" },
      });
      await harness.queue.outcome(second.stop({ waitMs: 0 }));
      await harness.work("pod-3", [kid(3)]);
      await harness.resume(child!.runId);
      expect(await harness.ended(child!.runId)).toMatchObject({ status: "cancelled" });
      expect(finals).toEqual(["cancelled"]);
    });

    test("a run that was cancelled while it was set aside goes on where it stood, also where it had failed before", async () => {
      const calls: string[] = [];
      const made = (version: number) =>
        flow("again", { version })
          .to("one", () => {
            calls.push("one");
            if (calls.length === 1) throw abort("once");
          })
          .to("two", () => void calls.push("two"))
          .signal("word")
          .end();
      const first = await harness.work("pod-1", [made(1)]);
      const { runId } = await harness.start(made(1), null);
      await harness.ended(runId);
      await harness.resume(runId);
      await harness.doing(runId, "waiting_for_signal");
      await harness.queue.outcome(first.stop({ waitMs: 0 }));
      const later = flow("again", { version: 2 })
        .to("one", () => {})
        .end();
      const second = await harness.work("pod-2", [later]);
      await harness.signal(runId, "word");
      await harness.doing(runId, "set_aside");
      await harness.queue.outcome(second.stop({ waitMs: 0 }));
      expect(await harness.cancel(runId)).toBe("cancelled");
      await harness.work("pod-3", [made(3)]);
      await harness.resume(runId);
      expect(await harness.ended(runId)).toMatchObject({ status: "completed" });
      expect(calls).toEqual(["one", "one", "two"]);
    });

    test("an ending of today isn't taken for stored because the same pod has noted the like before", async () => {
      fails.failed = true;
      await harness.work("pod-1", [child]);
      const { runId } = await harness.start(child, "bad");
      await harness.ended(runId);
      const { seq, detail } = (await harness.history(runId)).at(-1)!;
      const event = { type: "finish", attempt: null, detail: JSON.stringify(detail) };
      const noted = (writes: number) => {
        const finish = { taskId: runId, run: { seq: writes, events: [event] } };
        return harness.database.read(findNotedWrites("pod-1", [finish as unknown as RunFinish]));
      };
      const writes = Number((await harness.queue.row(runId))["run_seq"]);
      expect(await noted(writes)).toEqual([]);
      // The write that did note it had other events before.
      const placed = [...Array(seq % 100).fill(event), event];
      const finish = { taskId: runId, run: { seq: writes - 1, events: placed } };
      const stored = findNotedWrites("pod-1", [finish as unknown as RunFinish]);
      expect(await harness.database.read(stored)).toEqual([
        { task_id: runId, detail: event.detail },
      ]);
    });

    test("a pod that has a task by the name of a flow leaves its runs alone", async () => {
      const other = task("other", {}, () => null);
      await harness.work("pod-1", [task("napper", {}, () => "done"), other]);
      const { runId } = await harness.start(napper, "bed");
      const { taskId } = await harness.queue.enqueue(other, null);
      await harness.queue.ended(taskId);
      expect(await harness.view(runId)).toMatchObject({ status: "open", doing: { type: "ready" } });
      await harness.work("pod-2", [napper]);
      await harness.doing(runId, "sleeping");
    });
  });
}
