import { describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import type { Ids } from "../../base/ids.ts";
import { systemRandom } from "../../base/random.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import { createTasks } from "../../tasks/tasks.ts";
import type { Head } from "../log/journal.ts";
import {
  entry,
  fresh,
  header,
  headOf,
  record,
  messageRecord,
  startedTask,
  take,
  turn,
} from "./journal-harness.ts";
import { createSqlJournal } from "../log/sql-journal.ts";
import { rich, createSqlJournalHarness } from "./sql-journal-harness.ts";

/** What is in the rows of a journal in SQL, also in those that only the database is asked for. */
export function storedContract(kind: StoreKind, ids: Ids): void {
  describe(`what a journal in SQL stores on ${kind.name}`, () => {
    const scene = createSqlJournalHarness(kind, ids);

    test("O5: a header from earlier in its log never takes the place of a later one", async () => {
      const head = await scene.own();
      const id = fresh("session");
      headOf(await scene.sound.commit(head, messageRecord(id, 1, 2)));
      // The log is set back by hand, as a back-up of one table alone would do it.
      await scene.store.database.write([
        sql`update ${table("session")} set last_offset = 1000 where session_id = ${id}`,
      ]);
      const before = await scene.everythingOf(id);
      const [at] = (await scene.sound.heads()).slice(head.logId);
      const late = record({ headers: [header(fresh("other")), header(id, { lastSeq: 1 })] });
      headOf(await scene.sound.commit(at!, late));
      expect(await scene.everythingOf(id)).toEqual(before);
    });

    test("O3: a fenced record leaves users, reads and metadata alone", async () => {
      const head = await scene.own();
      const id = fresh("session");
      headOf(await scene.sound.commit(head, rich(id, 1, ["ada", "bob"])));
      const before = await scene.everythingOf(id);
      for (const late of [rich(id, 2, ["eve"]), rich(id, 1, [])]) {
        expect(await scene.sound.commit(head, late)).toEqual({ type: "fenced" });
      }
      expect(await scene.everythingOf(id)).toEqual(before);
    });

    test("of many pods that create logs at once, one creates all of them", async () => {
      const other = await kind.open();
      await migrate(other.database);
      const made = createSqlJournal({ database: other.database, ids });
      // In the first rounds there is no connection yet that they could do it on at the same time.
      for (let round = 0; round < 10; round++) {
        await other.database.write([sql`delete from ${table("session_log")}`]);
        await Promise.all([5, 6, 7, 8].map((logs) => made.create(logs)));
        const heads = await made.heads();
        expect([5, 6, 7, 8]).toContain(heads.length);
        expect(heads.map(({ logId }) => logId)).toEqual(heads.map((_, at) => at));
      }
      await other.database.close();
      await other.remove();
    });

    test("logs that are created again go on behind what the old ones have stored", async () => {
      const other = await kind.open();
      await migrate(other.database);
      const made = createSqlJournal({ database: other.database, ids });
      const id = fresh("session");
      await made.create(2);
      let head = await take(made, 1);
      for (let seq = 1; seq <= 5; seq++)
        head = headOf(await made.commit(head, messageRecord(id, seq)));
      await other.database.write([sql`delete from ${table("session_log")}`]);
      await made.create(2);
      expect(await made.commit(head, messageRecord(id, 6))).toEqual({ type: "fenced" });
      headOf(await made.commit(await take(made, 1), messageRecord(id, 6)));
      expect(await made.header(id)).toMatchObject({ lastSeq: 6 });
      expect(await made.entries(id, { after: 0, limit: 10 })).toHaveLength(6);
      await other.database.close();
      await other.remove();
    });

    test("users are those of the header, and what they have read only rises", async () => {
      let head = await scene.own();
      const id = fresh("session");
      const put = async (users: readonly string[], reads: Record<string, number>) => {
        const changes = record({
          headers: [header(id, { tenant: "acme", users })],
          reads: Object.entries(reads).map(([user, seq]) => ({ sessionId: id, user, seq })),
        });
        head = headOf(await scene.sound.commit(head, changes));
        return Object.fromEntries(
          (await scene.usersOf(id)).map((row) => [row["user_id"], Number(row["read_seq"])]),
        );
      };
      expect(await put(["ada", "bob"], {})).toEqual({ ada: 0, bob: 0 });
      expect((await scene.usersOf(id))[0]).toMatchObject({ tenant: "acme" });
      expect(await put(["ada", "bob"], { ada: 5, eve: 3 })).toEqual({ ada: 5, bob: 0 });
      expect(await put(["eve", "ada"], { ada: 4, eve: 2 })).toEqual({ ada: 5, eve: 2 });
      expect(await put([], {})).toEqual({});
    });

    test("a record of several reads by one user counts the furthest", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const reads = [3, 7, 5].map((seq) => ({ sessionId: id, user: "ada", seq }));
      headOf(await scene.sound.commit(head, record({ headers: [header(id)], reads })));
      expect(await scene.usersOf(id)).toMatchObject([{ read_seq: 7 }]);
    });

    test("metadata stays until it is set again", async () => {
      let head = await scene.own();
      const [id, other] = [fresh("session"), fresh("session")];
      const put = async (texts: Record<string, string>) => {
        const metadata = Object.entries(texts).map(([sessionId, text]) => ({
          sessionId,
          metadata: text,
        }));
        const headers = [header(id), header(other)];
        head = headOf(await scene.sound.commit(head, record({ headers, metadata })));
        return [await scene.metadataOf(id), await scene.metadataOf(other)];
      };
      expect(await put({})).toEqual([null, null]);
      expect(await put({ [id]: '{"a":1}' })).toEqual(['{"a":1}', null]);
      expect(await put({})).toEqual(['{"a":1}', null]);
      expect(await put({ [other]: "2" })).toEqual(['{"a":1}', "2"]);
      expect(await put({ [id]: "null" })).toEqual(["null", "2"]);
    });

    test("the checkpoint of a turn is removed with its answer, and no other's", async () => {
      let head = await scene.own();
      const [done, next] = [fresh("session"), fresh("session")];
      head = headOf(await scene.sound.commit(head, rich(done, 1)));
      head = headOf(await scene.sound.commit(head, rich(next, 2)));
      const reply = { role: "assistant", clientId: null, epoch: 1 } as const;
      headOf(
        await scene.sound.commit(
          head,
          record({
            entries: [entry(done, 2, reply), entry(next, 3, reply)],
            headers: [
              header(done, { lastSeq: 2, epoch: 1 }),
              header(next, { lastSeq: 3, epoch: 2, work: turn({ epoch: 2 }) }),
            ],
          }),
        ),
      );
      const left = await scene.store.database.read(sql`
        select session_id from ${table("turn_checkpoint")}
        where session_id = ${done} or session_id = ${next}`);
      expect(left).toEqual([{ session_id: next }]);
    });

    test("a deleted session leaves no row but its own, and that is empty", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const next = headOf(await scene.sound.commit(head, rich(id, 1, ["ada", "bob"])));
      const gone = record({
        headers: [header(id, { lastSeq: 1, status: "deleted" })],
        members: [],
      });
      headOf(await scene.sound.commit(next, gone));
      for (const each of ["message", "session_user", "turn_checkpoint"] as const) {
        const left = await scene.store.database.read(
          sql`select session_id from ${table(each)} where session_id = ${id}`,
        );
        expect(left).toEqual([]);
      }
      expect(await scene.metadataOf(id)).toBeNull();
    });

    test("S13: tasks are stored with the messages of their record, or not at all", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const [first, second] = [startedTask(id, `${id}/1`), startedTask(id, `${id}/2`)];
      const after = { ...second, after: [first.taskId], depends: 1 } as const;
      headOf(await scene.sound.commit(head, { ...messageRecord(id, 1), tasks: [first, after] }));
      expect(await scene.tasksOf(id)).toEqual([first.taskId, second.taskId]);
      const waits = await scene.store.database.read(sql`
        select dependency_id from ${table("task_dependency")}
        where dependent_id = ${second.taskId}`);
      expect(waits).toEqual([{ dependency_id: first.taskId }]);
      const late = { ...messageRecord(id, 2), tasks: [startedTask(id, `${id}/3`)] };
      expect(await scene.sound.commit(head, late)).toEqual({ type: "fenced" });
      const again = { clientId: `${id}/1` };
      const taken = record({
        entries: [entry(id, 2, again)],
        headers: [header(id, { lastSeq: 2 })],
        tasks: [startedTask(id, `${id}/4`)],
      });
      const at = (await scene.sound.heads())[head.logId]!;
      expect(await scene.sound.commit(at, taken)).toMatchObject({ type: "duplicate" });
      expect(await scene.tasksOf(id)).toEqual([first.taskId, second.taskId]);
    });

    test("S13: a task lets those run at once that it outdates, if its record is stored", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const far = { runAtMs: 32_503_680_000_000 };
      const taskOf = (seq: number, outdates: readonly string[] = []) =>
        startedTask(id, `${id}/${seq}`, { ...far, ...(outdates.length > 0 && { outdates }) });
      const due = async () => {
        const found = await scene.store.database.read(sql`
          select task_id from ${table("task")}
          where tenant = 'default' and task_id like ${`${id}/%`} and run_at < ${far.runAtMs}
          order by task_id`);
        return found.map((row) => row["task_id"]);
      };
      const commit = (at: typeof head, seq: number, outdates: readonly string[] = []) =>
        scene.sound.commit(at, { ...messageRecord(id, seq), tasks: [taskOf(seq, outdates)] });
      const next = headOf(await commit(head, 1));
      expect(await commit(head, 2, [`${id}/1`])).toEqual({ type: "fenced" });
      expect(await due()).toEqual([]);
      const last = headOf(await commit(next, 2, [`${id}/1`, `${id}/none`]));
      expect(await due()).toEqual([`${id}/1`]);
      // One that has ended or runs stays as it is.
      await scene.store.database.write([
        sql`update ${table("task")} set status = 'completed', run_at = 5 where task_id = ${`${id}/1`}`,
      ]);
      headOf(await commit(last, 3, [`${id}/1`]));
      const [row] = await scene.store.database.read(
        sql`select run_at from ${table("task")} where task_id = ${`${id}/1`}`,
      );
      expect(Number(row!["run_at"])).toBe(5);
    });

    test("S13: of records that share a transaction, the tasks of a fenced one aren't stored", async () => {
      const [one, other] = [await scene.own(), await scene.own()];
      const ids = [fresh("session"), fresh("session")] as const;
      const recordOf = (id: string) => ({
        ...messageRecord(id, 1),
        tasks: [startedTask(id, `${id}/1`, { key: id })],
      });
      const writes = scene.writes;
      const results = await Promise.all([
        scene.journal.commit({ ...one, offset: one.offset - 1 }, recordOf(ids[0])),
        scene.journal.commit(other, recordOf(ids[1])),
      ]);
      expect(results.map(({ type }) => type)).toEqual(["fenced", "committed"]);
      expect(scene.writes - writes).toBe(1);
      expect(await scene.tasksOf(ids[0])).toEqual([]);
      expect(await scene.tasksOf(ids[1])).toEqual([`${ids[1]}/1`]);
    });

    test("S13: the id of a task whose key is taken names the task that holds it", async () => {
      let head = await scene.own();
      const id = fresh("session");
      const [holder, alias, within] = [`${id}/holder`, `${id}/alias`, `${id}/within`];
      const keyed = (taskId: string) => startedTask(id, taskId, { key: id });
      const put = async (seq: number, taskIds: readonly string[]) => {
        const tasks = taskIds.map(keyed);
        head = headOf(await scene.sound.commit(head, { ...messageRecord(id, seq), tasks }));
      };
      await put(1, [holder, within]);
      await put(2, [alias]);
      expect(await scene.tasksOf(id)).toEqual([holder]);
      const { database } = scene.store;
      const tasks = createTasks({ database, clock: systemClock, random: systemRandom, ids });
      for (const taskId of [holder, alias, within]) {
        expect(await tasks.get(taskId)).toMatchObject({ taskId: holder });
      }
      const waiting = tasks.waitFor({ taskId: alias });
      const byId = tasks.settled(within);
      await tasks.cancel(holder);
      await expect(waiting).rejects.toMatchObject({ code: "cancelled" });
      expect(await byId).toMatchObject({ taskId: holder, status: "cancelled" });
      await database.write([sql`update ${table("task")} set last_update = 0, created_at = 0`]);
      await tasks.prune({ olderThanMs: 60_000 });
      tasks.close();
      const left = await database.read(sql`
        select alias_id from ${table("task_alias")} where task_id = ${holder}`);
      expect(left).toEqual([]);
    });

    test("a session keeps the tenant that it was made with", async () => {
      let head = await scene.own();
      const id = fresh("session");
      for (const tenant of ["acme", "other"]) {
        head = headOf(
          await scene.sound.commit(head, record({ headers: [header(id, { tenant })] })),
        );
      }
      expect(
        await scene.store.database.read(
          sql`select tenant from ${table("session")} where session_id = ${id}`,
        ),
      ).toEqual([{ tenant: "acme" }]);
    });

    test("what a record doesn't change isn't read", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const next: Head = headOf(await scene.journal.commit(head, messageRecord(id, 1)));
      const more = messageRecord(id, 2, 50);
      headOf(await scene.journal.commit(next, { ...more, members: [] }));
      expect(scene.sent).toBe(3);
    });
  });
}
