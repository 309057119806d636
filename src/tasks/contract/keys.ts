import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type ErrorCode, FlotillaError } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, type Statement } from "../../store/sql.ts";
import type { Enqueued } from "../enqueue/options.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { findKeys, insertTasks } from "../sql/enqueue.ts";
import { task } from "../task.ts";

/** What keys, lost answers and the caller's own transaction promise on every store. */
export function keysContract(kind: StoreKind): void {
  describe(`enqueueing once on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    test("gives the same task for the same key", async () => {
      const first = await queue.enqueue("mail", 1, { key: "k" });
      const second = await queue.enqueue("mail", 2, { key: "k" });
      expect(first.created).toBe(true);
      expect(second).toEqual({ taskId: first.taskId, created: false });
      expect((await queue.get(first.taskId))!.payload).toBe(1);
    });

    test("takes keys of other names and tenants for others", async () => {
      const all = await Promise.all([
        queue.enqueue("mail", 1, { key: "k" }),
        queue.enqueue("post", 1, { key: "k" }),
        queue.enqueue("mail", 1, { key: "k", tenant: "acme" }),
        queue.enqueue("mail", 1, { key: "K" }),
        queue.enqueue("mail", 1),
        queue.enqueue("mail", 1),
      ]);
      expect(new Set(all.map((each) => each.taskId)).size).toBe(6);
    });

    test("holds for concurrent calls, in one batch and between connections", async () => {
      const database = (await queue.store.again?.()) ?? queue.database;
      const other = queue.client({ database });
      const calls = Array.from({ length: 60 }, (_, at) =>
        (at % 2 ? queue : other).enqueue("mail", at, { key: "k" }),
      );
      const all = await Promise.all(calls);
      expect(new Set(all.map((each) => each.taskId)).size).toBe(1);
      expect(all.filter((each) => each.created)).toHaveLength(1);
      expect(await queue.count()).toBe(1);
      other.close();
      if (database !== queue.database) await database.close();
    });

    test("holds after the task has ended", async () => {
      const first = await queue.enqueue("mail", 1, { key: "k" });
      await queue.work("pod-1", [task("mail", {}, () => "done")]);
      await queue.ended(first.taskId);
      expect(await queue.enqueue("mail", 2, { key: "k" })).toEqual({
        taskId: first.taskId,
        created: false,
      });
      await queue.pass(5_000);
      expect((await queue.get(first.taskId))!.claimToken).toBe(1);
    });

    test("folds duplicates within a batch of 500", async () => {
      const calls = Array.from({ length: 500 }, (_, at) =>
        queue.enqueue("mail", at, { key: `k${at % 50}` }),
      );
      const all = await Promise.all(calls);
      expect(await queue.count()).toBe(50);
      expect(all.filter((each) => each.created)).toHaveLength(50);
      // As if they had come one after another: the first of each key is the one that is kept.
      all.forEach((each, at) => expect(each.taskId).toBe(all[at % 50]!.taskId));
      const many = await queue.enqueueMany("mail", [1, 2, 3], { key: () => "k7" });
      expect(many.map((each) => each.taskId)).toEqual(
        Array.from({ length: 3 }, () => all[7]!.taskId),
      );
    });

    test("stores a task once though the answer to its first send was lost", async () => {
      let losing = true;
      const shaky: Database = {
        ...queue.database,
        async write(statements) {
          const answer = await queue.database.write(statements);
          if (!losing) return answer;
          losing = false;
          throw new FlotillaError("unknown_outcome", "the answer was lost");
        },
      };
      const client = queue.client({ database: shaky });
      const plain = await queue.outcome(client.enqueue("mail", 1));
      expect(plain.created).toBe(true);
      losing = true;
      const keyed = await queue.outcome(client.enqueue("mail", 2, { key: "k" }));
      expect(keyed.created).toBe(true);
      losing = true;
      const again = await queue.outcome(client.enqueue("mail", 3, { key: "k" }));
      expect(again).toEqual({ taskId: keyed.taskId, created: false });
      expect(await queue.count()).toBe(2);
      client.close();
    });

    /** A client whose store refuses so many writes, once it has made so many that ask who holds a key. */
    const refused = (code: ErrorCode, { after = 0, times = Infinity } = {}) => {
      let [asked, refusals] = [0, times];
      const isRefused = (statements: readonly Statement[]) => {
        const asks = statements.some(({ strings }) => strings === findKeys([]).strings);
        if (asks) asked++;
        return asked > after && refusals-- > 0;
      };
      return queue.client({
        database: {
          ...queue.database,
          write: (statements, options) =>
            isRefused(statements)
              ? Promise.reject(new FlotillaError(code, "not now"))
              : queue.database.write(statements, options),
        },
      });
    };

    /** What calls that were made in one tick, and therefore in one batch, have come to. */
    const settled = (...calls: Promise<Enqueued>[]) =>
      queue.outcome(Promise.allSettled(calls), { stepMs: 100 });

    test.each(["store_busy", "store_unavailable", "unknown_outcome"] as const)(
      "what is stored is reported so, though the store doesn't answer who holds the key of another: %s",
      async (code) => {
        const first = await queue.enqueue("mail", 0, { key: "k" });
        const client = refused(code);
        const all = await settled(
          client.enqueue("mail", 1, { key: "k" }),
          client.enqueue("mail", 2),
          client.enqueue("mail", 3, { key: "mine" }),
        );
        expect(all).toMatchObject([
          { status: "rejected", reason: { code } },
          { status: "fulfilled", value: { created: true } },
          { status: "fulfilled", value: { created: true } },
        ]);
        expect(await queue.count()).toBe(3);
        // What was refused for certain is sent again by its caller, with its key.
        expect(await queue.enqueue("mail", 1, { key: "k" })).toEqual({ ...first, created: false });
        client.close();
      },
    );

    test("of rows that are stored each on its own account, too", async () => {
      await queue.enqueue("mail", 0, { key: "k" });
      const client = refused("store_busy");
      const { outcomes, ...counts } = await client.enqueueEach([
        { task: "mail", input: 1 },
        { task: "mail", input: 2, options: { key: "k" } },
        { task: "mail", input: 3 },
      ]);
      expect(outcomes.map((each) => ("code" in each ? each.code : each.outcome))).toEqual([
        "created",
        "store_busy",
        "created",
      ]);
      expect(counts).toMatchObject({ rows: 3, created: 2, rejected: 1 });
      expect(await queue.count()).toBe(3);
      client.close();
    });

    test("many that are stored together are read until it is known, and never called refused", async () => {
      const first = await queue.enqueue("mail", 0, { key: "k1" });
      const key = (input: number) => `k${input}`;
      const patient = refused("store_busy", { times: 3 });
      const all = await queue.outcome(patient.enqueueMany("mail", [1, 2], { key }));
      expect(all).toMatchObject([{ ...first, created: false }, { created: true }]);
      patient.close();
      const client = refused("store_unavailable");
      const many = client.enqueueMany("mail", [1, 3], { key });
      await expect(queue.outcome(many, { stepMs: 1_000 })).rejects.toMatchObject({
        code: "unknown_outcome",
        cause: { code: "store_unavailable" },
      });
      expect(await queue.count()).toBe(3);
      // Nothing of these is stored, so that they are refused for certain.
      const none = client.enqueueMany("mail", [1, 2], { key });
      await expect(queue.outcome(none)).rejects.toMatchObject({ code: "store_unavailable" });
      client.close();
    });

    /** A client before whose questions the holder of a key is deleted, and is there again at the next insert. */
    const losing = (key: string, { refuses }: { refuses?: ErrorCode } = {}) => {
      let inserts = 0;
      const isOf = (statements: readonly Statement[], { strings }: Statement) =>
        statements.some((each) => each.strings === strings);
      return queue.client({
        database: {
          ...queue.database,
          async write(statements, options) {
            if (isOf(statements, insertTasks([]))) {
              if (inserts++ > 0 && refuses) throw new FlotillaError(refuses, "not now");
              await queue.enqueue("mail", "holder", { key });
            } else if (isOf(statements, findKeys([]))) {
              await queue.database.write([
                sql`delete from ${rowsOf} where unique_key = ${key} and name = 'mail'`,
              ]);
            }
            return queue.database.write(statements, options);
          },
        },
      });
    };

    test("a key whose holders keep being deleted keeps no other from being reported as stored", async () => {
      const client = losing("k");
      const all = await settled(client.enqueue("mail", 1, { key: "k" }), client.enqueue("mail", 2));
      expect(all).toMatchObject([
        { status: "rejected", reason: { code: "store_busy" } },
        { status: "fulfilled", value: { created: true } },
      ]);
      const many = client.enqueueMany("mail", [3, 4], {
        key: (at) => (at === 3 ? "k" : "other"),
      });
      await expect(queue.outcome(many)).rejects.toMatchObject({ code: "unknown_outcome" });
      const stored = await queue.database.read(sql`select payload from ${rowsOf}`);
      const own = stored.filter(({ payload }) => ["1", "2", "3", "4"].includes(payload));
      expect(own).toHaveLength(2);
      client.close();
    });

    test("nor does one that is to be stored when its holder is gone, and is refused then", async () => {
      const client = losing("k", { refuses: "store_busy" });
      const all = await settled(client.enqueue("mail", 1, { key: "k" }), client.enqueue("mail", 2));
      expect(all).toMatchObject([
        { status: "rejected", reason: { code: "store_busy" } },
        { status: "fulfilled", value: { created: true } },
      ]);
      expect(await queue.count()).toBe(1);
      client.close();
    });

    test("reads who holds a key only where one was taken", async () => {
      const sent: number[] = [];
      const client = queue.client({
        database: {
          ...queue.database,
          write(statements, options) {
            sent.push(statements.length);
            return queue.database.write(statements, options);
          },
        },
      });
      const key = (input: number) => `k${input}`;
      await client.enqueueMany("mail", [1, 2, 3], { key });
      expect(sent).toEqual([1]);
      const again = await client.enqueueMany("mail", [3, 4], { key });
      expect(again.map((each) => each.created)).toEqual([false, true]);
      expect(sent).toEqual([1, 1, 1]);
      client.close();
    });

    test("in the caller's transaction is there when that commits, and not when it doesn't", async () => {
      const caller = await queue.store.caller?.();
      if (!caller) return;
      // Not every store notifies of commits of other connections.
      await queue.work("pod-1", [task("mail", {}, ({ input }) => input)], { pollMs: 20 });
      await caller.exec("create table if not exists orders (id integer)");

      await caller.begin();
      await caller.exec("insert into orders values (1)");
      const vanished = await queue.enqueue("mail", "vanished", { tx: caller.handle });
      expect(vanished.created).toBe(true);
      await caller.exec("rollback");

      await caller.begin();
      const kept = await queue.enqueue("mail", "kept", { tx: caller.handle, key: "k" });
      const same = await queue.enqueue("mail", "same", { tx: caller.handle, key: "k" });
      const many = await queue.enqueueMany("mail", [1, 2], { tx: caller.handle });
      expect(await queue.get(kept.taskId)).toBeUndefined();
      await caller.exec("commit");
      await caller.close();

      expect(same).toEqual({ taskId: kept.taskId, created: false });
      expect(await queue.ended(kept.taskId)).toMatchObject({ status: "completed", result: "kept" });
      for (const { taskId } of many) await queue.ended(taskId);
      expect(await queue.get(vanished.taskId)).toBeUndefined();
      expect(await queue.count()).toBe(3);
    });
  });
}
