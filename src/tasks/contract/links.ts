import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { abort, FlotillaError } from "../../base/errors.ts";
import { linksOf } from "../../links/links.ts";
import { insertLinks } from "../../links/sql.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { copyKey } from "../../protocol/copies.ts";
import { sql, table } from "../../store/sql.ts";
import { prune } from "../leader/prune.ts";
import { task } from "../task.ts";
import { openTasks, type TasksHarness } from "./harness.ts";

const links = table("link");
// A statement is known by its template, which is the same object every time it is made.
const linkText = insertLinks([]).strings;

/** What links between tasks promise on every store. */
export function linksContract(kind: StoreKind): void {
  describe(`links on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const stored = async () => {
      const rows = await queue.database.read(
        sql`select from_id, to_id, what from ${links} order by to_id`,
      );
      return rows.map((row) => ({ from: row["from_id"], to: row["to_id"], what: row["what"] }));
    };
    const started = async (taskId: string) =>
      (await linksOf(queue.database, taskId, "task")).started.map((each) => each.taskId);

    test("tell what a handler enqueued, by every way of enqueueing, and nothing of the rest", async () => {
      const made: string[] = [];
      const parent = task("parent", {}, async () => {
        const one = await queue.enqueue("child", 1);
        const keyed = await queue.enqueue("child", 2, { key: "k" });
        const replacing = await queue.enqueue("child", 3, { key: "r", onDuplicate: "replace" });
        const after = await queue.enqueue("child", 4, { after: [one.taskId] });
        const many = await queue.enqueueMany("child", [5, 6], {});
        const graph = await queue.enqueueGraph([
          { ref: "a", task: "child", input: 7 },
          { ref: "b", task: "child", input: 8, after: ["a"] },
        ]);
        await queue.enqueueEach([{ task: "child", input: 9, options: { key: "nine" } }]);
        const all = [one, keyed, replacing, after, ...many, graph.a, graph.b];
        made.push(...all.map(({ taskId }) => taskId));
      });
      await queue.work("pod-1", [parent]);
      const outside = await queue.enqueue("child", 0);
      const { taskId } = await queue.enqueue(parent, null);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      expect(await stored()).toHaveLength(9);
      expect(await started(taskId)).toEqual(expect.arrayContaining(made));
      expect(await linksOf(queue.database, made[0]!, "task")).toMatchObject({
        startedBy: { what: "task", id: taskId, atMs: expect.any(Number) },
        started: [],
        hasMore: false,
      });
      const { started: all } = await linksOf(queue.database, taskId, "task");
      expect(all.find((each) => each.taskId === made[0])).toMatchObject({
        what: "task",
        name: "child",
        status: "pending",
      });
      const none = { startedBy: null, started: [], hasMore: false };
      const without = { ...none, dependents: [], copies: [] };
      expect(await linksOf(queue.database, outside.taskId, "task")).toEqual(without);
    });

    test("aren't made to a task that another has started, or that wasn't stored", async () => {
      await queue.enqueue("child", 1, { key: "k" });
      const parent = task("parent", { attempts: 1 }, async () => {
        await queue.enqueue("child", 1, { key: "k" });
        const rejecting = { key: (input: number) => `k${input}`, onDuplicate: "reject" } as const;
        await queue.enqueue("child", 3, { key: "k3" });
        await queue.enqueueMany("child", [2, 3], rejecting).catch(() => {});
        await queue.enqueue("child", 4, { after: ["nothing"] }).catch(() => {});
      });
      await queue.work("pod-1", [parent]);
      const { taskId } = await queue.enqueue(parent, null);
      await queue.ended(taskId);
      expect(await stored()).toHaveLength(1);
    });

    test("are stored once with their tasks, also where the answer is lost", async () => {
      let lost = 0;
      const database: Database = {
        ...queue.database,
        async write(statements, options) {
          const tables = await queue.database.write(statements, options);
          const linking = statements.some((each) => each.strings === linkText);
          if (linking && lost++ < 2) throw new FlotillaError("unknown_outcome", "no answer came");
          return tables;
        },
      };
      const client = queue.client({ database });
      const parent = task("parent", {}, async () => {
        await client.enqueue("child", 1);
        await client.enqueue("child", 2, { key: "k" });
      });
      await queue.work("pod-1", [parent]);
      const { taskId } = await queue.enqueue(parent, null);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      expect(lost).toBe(4);
      expect(await stored()).toHaveLength(2);
      client.close();
    });

    test.skipIf(!kind.callers)("go with the caller's transaction", async () => {
      const caller = await queue.store.caller!();
      const parent = task("parent", { attempts: 1 }, async () => {
        for (const end of ["rollback", "commit"]) {
          await caller.begin();
          await queue.enqueue("child", end, { tx: caller.handle });
          await caller.exec(end);
        }
      });
      await queue.work("pod-1", [parent]);
      const { taskId } = await queue.enqueue(parent, null);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed" });
      expect(await started(taskId)).toHaveLength(1);
      await caller.close();
    });

    test("tell what comes after a task and which are its copies, and none of other tasks", async () => {
      const first = await queue.enqueue("child", 1);
      const second = await queue.enqueue("child", 2, { after: [first.taskId] });
      const third = await queue.enqueue("later", 3, { after: [first.taskId, second.taskId] });
      const key = (at: number) => copyKey(first.taskId, String(at).repeat(16));
      const copies = [
        await queue.enqueue("child", 4, { key: key(1) }),
        await queue.enqueue("child", 5, { key: key(2) }),
      ];
      // Of another tenant, of another name, and of a task whose id begins with the same.
      await queue.enqueue("child", 6, { key: key(3), tenant: "acme" });
      await queue.enqueue("later", 7, { key: key(4) });
      await queue.enqueue("child", 8, { key: copyKey(`${first.taskId}0`, "f".repeat(16)) });
      const { dependents, copies: found } = await linksOf(queue.database, first.taskId, "task");
      expect(dependents).toEqual([
        { taskId: second.taskId, name: "child", status: "pending", tenant: "default" },
        { taskId: third.taskId, name: "later", status: "pending", tenant: "default" },
      ]);
      expect(found.map(({ taskId }) => taskId)).toEqual(copies.map(({ taskId }) => taskId));
      expect(await linksOf(queue.database, third.taskId, "task")).toMatchObject({
        dependents: [],
        copies: [],
      });
    });

    test("lead from a task that failed to what follows its failure", async () => {
      const charge = task("charge", { attempts: 1, onFailure: () => {} }, () => {
        throw abort("no money");
      });
      await queue.work("pod-1", [charge]);
      const { taskId } = await queue.enqueue(charge, null);
      await queue.ended(taskId);
      expect((await linksOf(queue.database, taskId, "task")).started).toMatchObject([
        { what: "follow_up", name: "charge:failed" },
      ]);
    });

    test("are deleted with the task that they lead to", async () => {
      const parent = task("parent", {}, async () => {
        await queue.enqueue("child", 1);
        await queue.enqueue("later", 2);
      });
      const child = task("child", {}, () => {});
      await queue.work("pod-1", [parent, child]);
      const { taskId } = await queue.enqueue(parent, null);
      await queue.ended(taskId);
      const { started: made } = await linksOf(queue.database, taskId, "task");
      await queue.ended(made.find(({ name }) => name === "child")!.taskId);
      await queue.pass(120_000);
      expect(await prune(queue, { olderThanMs: 90_000 })).toMatchObject({ deleted: 2 });
      const left = await stored();
      expect(left).toMatchObject([{ from: taskId, what: "task" }]);
      expect(await linksOf(queue.database, left[0]!.to, "task")).toMatchObject({
        startedBy: { id: taskId },
      });
    });

    test("are read up to a hundred, and say that there are more", async () => {
      const parent = task("parent", {}, async () => {
        const inputs = Array.from({ length: 101 }, (_, at) => at);
        await queue.enqueueMany("child", inputs);
      });
      await queue.work("pod-1", [parent]);
      const { taskId } = await queue.enqueue(parent, null);
      await queue.ended(taskId);
      const read = await linksOf(queue.database, taskId, "task");
      expect(read.started).toHaveLength(100);
      expect(read.hasMore).toBe(true);
      // A session or a schedule may have the id of a task.
      expect(await linksOf(queue.database, taskId, "session")).toMatchObject({ started: [] });
    });
  });
}
