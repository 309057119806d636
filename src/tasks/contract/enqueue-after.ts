import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort, FlotillaError } from "../../base/errors.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { readDepth } from "../inspect/depth.ts";
import { openTasks, type TasksHarness } from "./harness.ts";
import { task } from "../task.ts";

/** What those are promised who enqueue tasks that wait for others, and who handle them. */
export function enqueueAfterContract(kind: StoreKind): void {
  describe(`enqueueing after other tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const length = task("length", {}, (context) => (context.input as string).length);
    const sum = task("sum", {}, async ({ parents }) => {
      const results = (await parents()).map((each) => (each as { result?: number }).result);
      return results;
    });
    const hopeless = task("hopeless", {}, () => {
      throw abort("nothing helps");
    });
    const asRefused = (code: string) => expect.objectContaining({ code });

    test("the handler gets what the others came to, in the order that was given", async () => {
      const words = await queue.enqueueMany("length", ["one", "three", "seventeen"]);
      const after = [words[2]!, words[0]!.taskId, words[1]!];
      const { taskId } = await queue.enqueue("sum", null, { after });
      expect(await queue.get(taskId)).toMatchObject({
        status: "pending",
        waitsFor: [words[2]!.taskId, words[0]!.taskId, words[1]!.taskId],
      });
      await queue.work("pod-1", [length, sum]);
      expect(await queue.ended(taskId)).toMatchObject({ result: [9, 3, 5] });
      const { tasks } = await queue.list({ name: "sum" });
      expect(tasks).toMatchObject([{ waitsFor: { length: 3 } }]);
      expect((await queue.list({ name: "length" })).tasks[0]).toMatchObject({ waitsFor: [] });
    });

    test("one whose awaited task fails is failed without being run, and so are those behind it", async () => {
      const root = await queue.enqueue("hopeless", null);
      const next = await queue.enqueue("sum", null, { after: [root], attempts: 5 });
      const last = await queue.enqueue("sum", null, { after: [next] });
      const anyway = await queue.enqueue("sum", null, { after: [next], afterFailed: "run" });
      await queue.work("pod-1", [hopeless, sum]);
      const error = (culprit: string) => ({
        status: "failed",
        failures: 0,
        error: { code: "dependency_failed", taskId: culprit },
      });
      expect(await queue.ended(next.taskId)).toMatchObject(error(root.taskId));
      expect(await queue.ended(last.taskId)).toMatchObject(error(next.taskId));
      expect(await queue.ended(anyway.taskId)).toMatchObject({
        status: "completed",
        result: [null],
      });
      expect(await queue.events(next.taskId)).toMatchObject([{ type: "failed" }]);
    });

    test("an unknown id is refused, and nothing is stored", async () => {
      const known = await queue.enqueue("length", "x");
      const after = [known, "nobody", "no one"];
      const refused = queue.enqueue("sum", null, { after });
      await expect(refused).rejects.toMatchObject({
        code: "not_found",
        message: expect.stringContaining("nobody"),
        details: { taskId: "nobody", taskIds: ["nobody", "no one"] },
      });
      await expect(
        queue.enqueueMany("sum", ["a", "b"], { after, key: (input) => input as string }),
      ).rejects.toThrow(asRefused("not_found"));
      expect(await queue.count()).toBe(1);
      expect(await queue.database.read(sql`select 1 from ${table("task_dependency")}`)).toEqual([]);
    });

    test("a key that is there already gives its task, whatever it was to wait for", async () => {
      const one = await queue.enqueue("length", "x");
      const first = await queue.enqueue("sum", null, { key: "k", after: [one] });
      for (const after of [[], [one], ["nobody"]]) {
        const again = await queue.enqueue("sum", null, { key: "k", after });
        expect(again).toEqual({ taskId: first.taskId, created: false });
      }
      expect(await queue.get(first.taskId)).toMatchObject({ waitsFor: [one.taskId] });
    });

    test("many wait alike, and one key of them may be taken", async () => {
      const one = await queue.enqueue("length", "x");
      const there = await queue.enqueue("length", "b", { key: "b" });
      const many = await queue.enqueueMany("length", ["a", "b", "c"], {
        after: [one],
        key: (input) => input as string,
      });
      expect(many.map((each) => each.created)).toEqual([true, false, true]);
      expect(await queue.get(many[0]!.taskId)).toMatchObject({ waitsFor: [one.taskId] });
      expect(await queue.get(there.taskId)).toMatchObject({ waitsFor: [] });
    });

    test("each of many rows waits on its own account, and an unknown id sinks no other", async () => {
      const one = await queue.enqueue("length", "x");
      const row = (after: string[]) => ({ task: "sum", input: null, options: { after } });
      const { outcomes } = await queue.enqueueEach([row([one.taskId]), row(["nobody"]), row([])]);
      expect(outcomes).toMatchObject([
        { outcome: "created" },
        { outcome: "rejected", code: "not_found", details: { taskId: "nobody" } },
        { outcome: "created" },
      ]);
      expect(await queue.count(sql`name = 'sum' and parked = 2`)).toBe(1);
    });

    test.each([
      ["more than a thousand", { after: Array<string>(1_001).fill("x") }],
      ["no list", { after: "x" as never }],
      ["no id", { after: [{} as never] }],
      ["an empty id", { after: [""] }],
      ["another word", { after: ["x"], afterFailed: "sometimes" as never }],
      ["nothing to fail", { afterFailed: "run" as const }],
      ["a replacement", { after: ["x"], key: "k", onDuplicate: "replace" as const }],
    ])("%s is refused", async (_, options) => {
      const refused = queue.enqueue("sum", null, options);
      await expect(refused).rejects.toThrow(asRefused("invalid_option"));
    });

    test("sent twice, it waits once, and the same holds where it ended in between", async () => {
      const one = await queue.enqueue("length", "x");
      let lose = true;
      const { database } = queue;
      const lossy = queue.client({
        database: {
          ...database,
          async write(statements, options) {
            const tables = await database.write(statements, options);
            if (!lose) return tables;
            lose = false;
            await queue.work("pod-1", [length]);
            await queue.ended(one.taskId);
            throw new FlotillaError("unknown_outcome", "simulated");
          },
        },
      });
      const sent = lossy.enqueue("sum", null, { after: [one] });
      const { taskId, created } = await queue.outcome(sent);
      expect(created).toBe(true);
      expect(await queue.row(taskId)).toMatchObject({ parked: 0 });
      expect(await queue.get(taskId)).toMatchObject({ waitsFor: [one.taskId] });
      lossy.close();
    });

    test("the depth shows those that wait for others", async () => {
      const one = await queue.enqueue("length", "x");
      await queue.enqueueMany("sum", [1, 2], { after: [one] });
      const depth = Object.fromEntries(await readDepth(queue.database));
      expect(depth).toMatchObject({ length: { ready: 1 }, sum: { waiting: 2, ready: 0 } });
    });

    const { callers } = kind;
    test.runIf(callers)(
      "in a transaction of the caller's, it waits once that commits",
      async () => {
        const caller = await queue.store.caller!();
        try {
          await caller.begin();
          const one = await queue.enqueue("length", "four", { tx: caller.handle });
          const options = { tx: caller.handle, after: [one] };
          const two = await queue.enqueue("sum", null, options);
          await caller.exec("commit");
          await queue.work("pod-1", [length, sum]);
          expect(await queue.ended(two.taskId)).toMatchObject({ result: [4] });
        } finally {
          await caller.close();
        }
      },
    );

    test.runIf(callers)(
      "a completion in the handler's transaction wakes with its commit",
      async () => {
        const caller = await queue.store.caller!();
        try {
          const one = await queue.enqueue("pay", null);
          const pay = task("pay", {}, async ({ complete }) => {
            // A task begins to wait only now, which the claim can't have known.
            const waiter = await queue.enqueue("sum", null, { after: [one] });
            await caller.begin();
            await complete(caller.handle, 7);
            expect(await queue.row(waiter.taskId)).toMatchObject({ parked: 2 });
            await caller.exec("commit");
            expect(await queue.row(waiter.taskId)).toMatchObject({ parked: 0 });
          });
          await queue.work("pod-1", [pay, sum]);
          expect(await queue.ended(one.taskId)).toMatchObject({ status: "completed", result: 7 });
          const { tasks } = await queue.list({ name: "sum" });
          // If no listener is notified of a commit, the next poll finds it.
          await queue.pass(1_500);
          expect(await queue.ended(tasks[0]!.taskId)).toMatchObject({ result: [7] });
        } finally {
          await caller.close();
        }
      },
    );
  });
}
