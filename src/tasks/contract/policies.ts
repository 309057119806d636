import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql } from "../../store/sql.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { findKeys } from "../sql/enqueue.ts";
import { task } from "../task.ts";

/** What may be asked of a key beyond naming one task for good, on every store. */
export function policiesContract(kind: StoreKind): void {
  describe(`keys with a policy on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
    });
    afterEach(() => queue.close());

    const unfinished = { key: "k", uniqueWhile: "unfinished" } as const;
    const replace = { key: "k", onDuplicate: "replace" } as const;
    const reject = { key: "k", onDuplicate: "reject" } as const;
    const end = (taskId: string) =>
      queue.database.write([
        sql`update ${rowsOf} set status = 'completed' where task_id = ${taskId}`,
      ]);

    test("reject names who holds the key, and stores nothing", async () => {
      const first = await queue.enqueue("mail", 1, reject);
      expect(first).toEqual({ taskId: first.taskId, created: true });
      await expect(queue.enqueue("mail", 2, reject)).rejects.toMatchObject({
        code: "duplicate_key",
        details: { taskId: first.taskId, key: "k" },
      });
      expect(await queue.count()).toBe(1);
    });

    test("reject refuses all of many, and leaves nothing of them behind", async () => {
      const other = await queue.enqueue("mail", 0, { key: "c" });
      const many = queue.enqueueMany("mail", ["a", "b", "c", "d"], {
        key: (input) => input,
        onDuplicate: "reject",
      });
      await expect(many).rejects.toMatchObject({
        code: "duplicate_key",
        details: { taskId: other.taskId, key: "c" },
      });
      const twice = queue.enqueueMany("mail", ["x", "y", "x"], {
        key: (input) => input,
        onDuplicate: "reject",
      });
      await expect(twice).rejects.toMatchObject({ code: "duplicate_key" });
      expect(await queue.count()).toBe(1);
      const fine = { key: (input: string) => input, onDuplicate: "reject" } as const;
      expect(await queue.enqueueMany("mail", ["a", "b"], fine)).toHaveLength(2);
      expect(await queue.count()).toBe(3);
    });

    test("replace makes a waiting task do something else, as if it were new", async () => {
      const first = await queue.enqueue("mail", 1, { key: "k", delayMs: 60_000 });
      await queue.database.write([
        sql`update ${rowsOf} set retry_count = 2, deaths = 1, error = '{}', progress = '5'
          where task_id = ${first.taskId}`,
      ]);
      const second = await queue.enqueue("mail", 2, { ...replace, priority: 7, attempts: 9 });
      expect(second).toEqual({ taskId: first.taskId, created: false, replaced: true });
      expect(await queue.get(first.taskId)).toMatchObject({
        payload: 2,
        priority: 7,
        maxAttempts: 9,
        failures: 0,
        deaths: 0,
        error: null,
        progress: null,
        claimToken: 1,
      });
      expect(await queue.row(first.taskId)).toMatchObject({ parked: 0 });
      expect(await queue.events(first.taskId)).toMatchObject([
        { type: "replaced", detail: { token: 1 } },
      ]);
      await queue.enqueue("mail", 3, { ...replace, delayMs: 5_000 });
      const stored = (await queue.get(first.taskId))!;
      expect(stored.runAtMs - stored.updatedAtMs).toBe(5_000);
      expect(await queue.row(first.taskId)).toMatchObject({ parked: 1, claim_token: 2 });
      expect(await queue.count()).toBe(1);
    });

    test("replace leaves a task alone that runs or has ended", async () => {
      const first = await queue.enqueue("mail", 1, replace);
      expect(first).toEqual({ taskId: first.taskId, created: true, replaced: false });
      await queue.beat("pod-1");
      const [claim] = await queue.claim("pod-1", ["mail"]);
      const left = { taskId: first.taskId, created: false, replaced: false };
      expect(await queue.enqueue("mail", 2, replace)).toEqual(left);
      await end(first.taskId);
      expect(await queue.enqueue("mail", 3, replace)).toEqual(left);
      expect(await queue.get(first.taskId)).toMatchObject({ payload: 1, claimToken: claim!.token });
      expect(await queue.events(first.taskId)).toEqual([]);
      const next = await queue.enqueue("mail", 4, { ...replace, ...unfinished });
      expect(next).toMatchObject({ created: true, replaced: false });
      expect(next.taskId).not.toBe(first.taskId);
    });

    test("replace takes a recovered task from the pod that still runs it", async () => {
      const { taskId } = await queue.enqueue("mail", 1, replace);
      let release = () => {};
      const gate = new Promise<void>((resolve) => (release = resolve));
      const mail = task("mail", {}, async ({ input }) => (await gate, input));
      await queue.work("pod-1", [mail]);
      const { claimToken: token } = await queue.inStatus(taskId, "claimed");
      await queue.recover("pod-1", [{ taskId, token }]);
      expect(await queue.enqueue("mail", 2, replace)).toMatchObject({ taskId, replaced: true });
      release();
      await queue.work("pod-2", [mail]);
      expect(await queue.ended(taskId)).toMatchObject({ status: "completed", result: 2 });
    });

    test("the last of many replacements counts, and only the last hundred are noted", async () => {
      const { taskId } = await queue.enqueue("mail", 0, { ...replace, delayMs: 1 });
      for (let batch = 0; batch < 21; batch++) {
        const calls = Array.from({ length: 5 }, (_, at) =>
          queue.enqueueMany("mail", [batch, at], { ...replace, key: () => "k" }),
        );
        for (const two of await Promise.all(calls)) {
          expect(two).toEqual([1, 2].map(() => ({ taskId, created: false, replaced: true })));
        }
      }
      await queue.enqueue("mail", "last", replace);
      expect((await queue.get(taskId))!.payload).toBe("last");
      const events = await queue.events(taskId);
      expect(events.length).toBeGreaterThanOrEqual(99);
      expect(events.length).toBeLessThanOrEqual(101);
      expect(events.at(-1)).toMatchObject({ seq: 106, type: "replaced" });
    });

    test("unfinished frees the key when its task ends, and not before", async () => {
      const first = await queue.enqueue("mail", 1, unfinished);
      expect(await queue.enqueue("mail", 2, unfinished)).toEqual({ ...first, created: false });
      await end(first.taskId);
      // A caller that wants the task as long as it is kept still gets it.
      expect(await queue.enqueue("mail", 3, { key: "k" })).toEqual({ ...first, created: false });
      const second = await queue.enqueue("mail", 4, unfinished);
      expect(second.created).toBe(true);
      expect(await queue.get(first.taskId)).toMatchObject({ key: null, status: "completed" });
      expect(await queue.enqueue("mail", 5, { key: "k" })).toEqual({ ...second, created: false });
    });

    test("unfinished costs no more than the insert where no task holds the keys", async () => {
      const sent: string[] = [];
      const client = queue.client({
        database: {
          ...queue.database,
          write(statements, options) {
            sent.push(...statements.map(({ strings }) => strings[0]!.trim()));
            return queue.database.write(statements, options);
          },
        },
      });
      const all = await Promise.all(
        [1, 2, 3].map((n) =>
          client.enqueue("mail", n, { key: `k${n}`, uniqueWhile: "unfinished" }),
        ),
      );
      expect(all.map(({ created }) => created)).toEqual([true, true, true]);
      expect(new Set(sent)).toEqual(new Set(["insert into"]));
      client.close();
    });

    test("unfinished takes keys of ended tasks in one write where the last ones were held, too", async () => {
      let writes = 0;
      const client = queue.client({
        database: {
          ...queue.database,
          write(statements, options) {
            writes++;
            return queue.database.write(statements, options);
          },
        },
      });
      const writesOf: number[] = [];
      for (let n = 0; n < 18; n++) {
        writes = 0;
        expect((await client.enqueue("mail", n, unfinished)).created).toBe(true);
        writesOf.push(writes);
        await queue.database.write([sql`update ${rowsOf} set status = 'completed'`]);
      }
      // The first key is free, the second shows that keys are held, and one in 16 tries again.
      expect(writesOf).toEqual([1, 2, ...Array<number>(15).fill(1), 2]);
      client.close();
    });

    test("of two in one call with a key that counts while unfinished, one is made, though it ends meanwhile", async () => {
      const database: Database = {
        ...queue.database,
        async write(statements, options) {
          const answer = await queue.database.write(statements, options);
          await queue.database.write([sql`update ${rowsOf} set status = 'completed'`]);
          return answer;
        },
      };
      const client = queue.client({ database });
      const [one, other] = await client.enqueueMany("mail", [1, 2], {
        key: () => "k",
        uniqueWhile: "unfinished",
      });
      expect(one!.created).toBe(true);
      expect(other).toEqual({ taskId: one!.taskId, created: false });
      expect(await queue.count()).toBe(1);
      client.close();
    });

    test("a key is free again so long after its task was created", async () => {
      const within = { key: "k", uniqueForMs: 60_000 };
      const first = await queue.enqueue("mail", 1, within);
      await queue.pass(30_000);
      expect(await queue.enqueue("mail", 2, within)).toEqual({ ...first, created: false });
      await queue.pass(30_000);
      const second = await queue.enqueue("mail", 3, within);
      expect(second.created).toBe(true);
      expect((await queue.get(first.taskId))!.status).toBe("pending");
    });

    test("rows of one key with different policies have the outcome of one after the other", async () => {
      const first = await queue.enqueue("mail", "first", { key: "k" });
      await end(first.taskId);
      const all = await Promise.all([
        queue.enqueue("mail", "kept", { key: "k" }),
        queue.enqueue("mail", "new", unfinished),
        queue.enqueue("mail", "replacing", replace),
        queue.enqueue("mail", "rejected", reject).catch((error: FlotillaError) => error.code),
        queue.enqueue("mail", "kept again", { key: "k" }),
      ]);
      const { taskId } = all[1];
      expect(all).toEqual([
        { taskId: first.taskId, created: false },
        { taskId, created: true },
        { taskId, created: false, replaced: true },
        "duplicate_key",
        { taskId, created: false },
      ]);
      expect((await queue.get(taskId))!.payload).toBe("replacing");
    });

    test("of many at once, on many connections, exactly one makes the next task", async () => {
      const open = async () => (await queue.store.again?.()) ?? queue.database;
      const databases = await Promise.all([open(), open(), open()]);
      const clients = databases.map((database) => queue.client({ database }));
      for (let turn = 0; turn < 5; turn++) {
        const policies = [unfinished, { ...unfinished, ...replace }, { ...unfinished, ...reject }];
        const calls = clients.flatMap((client, at) =>
          Array.from({ length: 20 }, () =>
            client
              .enqueue("mail", at, policies[at])
              .catch((error: FlotillaError) => ({ created: false, code: error.code })),
          ),
        );
        const all = await Promise.all(calls);
        expect(all.filter((each) => each.created)).toHaveLength(1);
        expect(await queue.count(sql`unique_key = 'k'`)).toBe(1);
        expect(await queue.count()).toBe(turn + 1);
        expect(all.filter((each) => "code" in each && each.code !== "duplicate_key")).toEqual([]);
        // A waiting task can be replaced, so every caller that asked for that and wasn't first has replaced it.
        const replacing = all.slice(20, 40) as { created: boolean; replaced: boolean }[];
        expect(replacing.filter((each) => !each.created && !each.replaced)).toEqual([]);
        await queue.database.write([sql`update ${rowsOf} set status = 'failed'`]);
      }
      clients.forEach((client) => client.close());
      for (const each of databases) if (each !== queue.database) await each.close();
    });

    describe("an answer that was lost", () => {
      /** Loses the answer to the next write, after which something else happens. */
      const losing = (meanwhile: () => Promise<unknown>) => {
        let lost = false;
        const shaky: Database = {
          ...queue.database,
          async write(statements, options) {
            const answer = await queue.database.write(statements, options);
            if (lost) return answer;
            lost = true;
            await meanwhile();
            throw new FlotillaError("unknown_outcome", "the answer was lost");
          },
        };
        return queue.client({ database: shaky });
      };

      test("doesn't hide that the task was made, though its key is another's by now", async () => {
        let next = "";
        const client = losing(async () => {
          await queue.database.write([sql`update ${rowsOf} set status = 'completed'`]);
          next = (await queue.enqueue("mail", "next", unfinished)).taskId;
        });
        const first = await queue.outcome(client.enqueue("mail", "first", unfinished));
        expect(first.created).toBe(true);
        expect(first.taskId).not.toBe(next);
        expect(await queue.row(next)).toMatchObject({ unique_key: "k", status: "pending" });
        expect(await queue.count()).toBe(2);
        client.close();
      });

      test("doesn't take the key from the task that was made, though it has ended by now", async () => {
        const client = losing(() =>
          queue.database.write([sql`update ${rowsOf} set status = 'completed'`]),
        );
        const made = await queue.outcome(client.enqueue("mail", 1, unfinished));
        expect(made.created).toBe(true);
        expect(await queue.row(made.taskId)).toMatchObject({ unique_key: "k" });
        client.close();
      });

      test("of many that must not be duplicates takes none of them back", async () => {
        const client = losing(async () => {
          await queue.database.write([sql`update ${rowsOf} set status = 'completed'`]);
          await queue.enqueue("mail", "next", unfinished);
        });
        const many = client.enqueueMany("mail", ["k", "l"], {
          key: (input) => input,
          onDuplicate: "reject",
          uniqueWhile: "unfinished",
        });
        const created = await queue.outcome(many);
        expect(created.map((each) => each.created)).toEqual([true, true]);
        expect(await queue.count()).toBe(3);
        client.close();
      });

      test("of a replacement is no reason to replace again", async () => {
        const { taskId } = await queue.enqueue("mail", "old", { ...replace, delayMs: 60_000 });
        const client = losing(() => queue.enqueue("mail", "newer", replace));
        const mine = await queue.outcome(client.enqueue("mail", "mine", replace));
        expect(mine).toEqual({ taskId, created: false, replaced: true });
        expect(await queue.get(taskId)).toMatchObject({ payload: "newer", claimToken: 2 });
        expect(await queue.events(taskId)).toHaveLength(2);
        client.close();
      });

      test("of a replacement doesn't change the task that came after it", async () => {
        const policy = { ...replace, ...unfinished };
        const first = await queue.enqueue("mail", "old", policy);
        let next = "";
        const client = losing(async () => {
          await end(first.taskId);
          next = (await queue.enqueue("mail", "next", policy)).taskId;
        });
        const mine = await queue.outcome(client.enqueue("mail", "mine", policy));
        expect(mine).toMatchObject({ created: false });
        expect((await queue.get(first.taskId))!.payload).toBe("mine");
        expect((await queue.get(next))!.payload).toBe("next");
        client.close();
      });
    });

    test("a key whose task is deleted while it is read makes a task after all", async () => {
      await queue.enqueue("mail", "old", { key: "k" });
      let deleted = false;
      const racing: Database = {
        ...queue.database,
        // The delete comes between the insert that finds the key taken and the read of its holder.
        async write(statements, options) {
          if (deleted) return queue.database.write(statements, options);
          deleted = true;
          const [first] = await queue.database.write(statements.slice(0, 1), options);
          await queue.database.write([sql`delete from ${rowsOf}`]);
          const rest = await queue.database.write(statements.slice(1), options);
          return [first!, ...rest];
        },
      };
      const client = queue.client({ database: racing });
      const made = await client.enqueue("mail", "new", { key: "k" });
      expect(made.created).toBe(true);
      expect(await queue.get(made.taskId)).toMatchObject({ payload: "new" });
      client.close();
    });

    test("what a first write has stored isn't denied by the second, that a key of another has needed", async () => {
      const old = await queue.enqueue("mail", "old", { key: "k" });
      let writes = 0;
      const racing: Database = {
        ...queue.database,
        async write(statements, options) {
          if (writes++ > 0) throw new FlotillaError("store_busy", "not now");
          // The holder of the key is deleted between the insert and the read of its holder.
          const at = statements.findIndex(({ strings }) => strings === findKeys([]).strings);
          const first = await queue.database.write(statements.slice(0, at), options);
          await queue.database.write([sql`delete from ${rowsOf} where task_id = ${old.taskId}`]);
          return [...first, ...(await queue.database.write(statements.slice(at), options))];
        },
      };
      const client = queue.client({ database: racing });
      const all = Promise.allSettled([
        client.enqueue("mail", 1, { key: "k" }),
        client.enqueue("mail", 2, { key: "own", onDuplicate: "replace" }),
        client.enqueue("mail", 3),
      ]);
      expect(await queue.outcome(all)).toMatchObject([
        { status: "rejected", reason: { code: "store_busy" } },
        { status: "fulfilled", value: { created: true } },
        { status: "fulfilled", value: { created: true } },
      ]);
      expect(await queue.count()).toBe(2);
      client.close();
    });

    test("policies hold in the caller's transaction", async () => {
      const caller = await queue.store.caller?.();
      if (!caller) return;
      const tx = caller.handle;
      const first = await queue.enqueue("mail", 1, { key: "k", delayMs: 60_000 });
      await caller.begin();
      const replaced = await queue.enqueue("mail", 2, { ...replace, tx });
      expect(replaced).toEqual({ taskId: first.taskId, created: false, replaced: true });
      const refused = queue.enqueue("mail", 3, { ...reject, tx });
      await expect(refused).rejects.toMatchObject({ code: "duplicate_key" });
      const many = queue.enqueueMany("mail", ["j", "k"], { ...reject, tx, key: (input) => input });
      await expect(many).rejects.toMatchObject({ code: "duplicate_key" });
      // A refusal is an answer: the transaction goes on.
      await queue.enqueue("mail", 4, { key: "l", tx });
      await caller.exec("commit");
      await caller.close();
      expect((await queue.get(first.taskId))!.payload).toBe(2);
      expect(await queue.count()).toBe(2);
    });

    test.each([
      [{ onDuplicate: "replace" }, "onDuplicate needs a key"],
      [{ uniqueForMs: 5 }, "uniqueForMs needs a key"],
      [{ key: "k", onDuplicate: "ignore" }, "existing, reject, replace"],
      [{ key: "k", uniqueWhile: "running" }, "kept, unfinished"],
      [{ key: "k", uniqueForMs: 0 }, "uniqueForMs must be"],
    ])("refuses %j", async (options, message) => {
      const refused = queue.enqueue("mail", 1, options as object);
      await expect(refused).rejects.toMatchObject({
        code: "invalid_option",
        message: expect.stringContaining(message),
      });
    });
  });
}
