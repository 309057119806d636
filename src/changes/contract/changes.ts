import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { dayMs } from "../../base/durations.ts";
import { FlotillaError } from "../../base/errors.ts";
import { seededRandom } from "../../base/random.ts";
import type { CallerConnection, StoreKind } from "../../store/contract/database.ts";
import { emptyTables } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { sql, table } from "../../store/sql.ts";
import { openTasks, rowsOf, type TasksHarness } from "../../tasks/contract/harness.ts";
import { task } from "../../tasks/task.ts";
import type { RecordedChange } from "../change.ts";
import { type ChangePageOptions, createChanges } from "../changes.ts";
import { createChangesLeader } from "../recording.ts";
import { setRecording } from "../recording.ts";

const soon = { baseMs: 1, factor: 1, jitter: 0 } as const;
const keepMs = dayMs;

/** What readers of changes are promised on every store. */
export function changesContract(kind: StoreKind): void {
  describe(`changes on ${kind.name}`, () => {
    let queue: TasksHarness;
    let database: Database;
    let canRecord: boolean;
    const callers: CallerConnection[] = [];

    const record = (wanted: Parameters<typeof setRecording>[0] = { keepMs }) =>
      setRecording(wanted, { ...queue, migrate: "auto" });
    const reader = (on: Database = database) => createChanges({ ...queue, database: on });
    const leader = (batchRows?: number) =>
      createChangesLeader({ ...queue, ...(batchRows !== undefined && { batchRows }) });
    /** Everything after a cursor, by pages. */
    const readAll = async (options: ChangePageOptions = {}): Promise<RecordedChange[]> => {
      const all: RecordedChange[] = [];
      let page = await reader().page(options);
      for (;;) {
        all.push(...page.changes);
        if (!page.more) return all;
        page = await reader().page({ ...options, after: page.cursor });
      }
    };
    /** Other transactions of the server, even of other databases, may hold changes back for a while. */
    const readUntil = (
      holds: (all: readonly RecordedChange[]) => boolean,
      options?: ChangePageOptions,
    ) =>
      queue.until("the changes", async () => {
        const all = await readAll(options);
        return holds(all) ? all : undefined;
      });
    const atLeast = (count: number, options?: ChangePageOptions) =>
      readUntil((all) => all.length >= count, options);
    const of = (all: readonly RecordedChange[], id: string) =>
      all.filter((change) => change.id === id).map(({ change }) => change);
    const openCaller = async () => {
      const caller = await queue.store.caller!();
      callers.push(caller);
      return caller;
    };

    beforeEach(async () => {
      queue = await openTasks(kind);
      ({ database } = queue);
      canRecord = database.recordsChanges === true;
      if (canRecord) await record(false);
      await emptyTables(queue.store, ["change", "change_state", "session", "turn"]);
    });
    afterEach(async () => {
      for (const caller of callers.splice(0)) await caller.close();
      if (canRecord) await record(false);
      await queue.close();
    });

    test("aren't recorded until that is asked for, and then said to be not", async () => {
      await queue.enqueue("mail", {});
      expect(await database.read(sql`select 1 from ${table("change")}`)).toEqual([]);
      await expect(reader().page()).rejects.toMatchObject({ code: "conflict" });
      if (canRecord) return;
      await expect(record()).rejects.toMatchObject({ code: "unsupported" });
    });

    test("of a task are told in order: created, retried, ended, started over", async () => {
      if (!canRecord) return;
      await record();
      let calls = 0;
      await queue.work("pod-1", [
        task("mail", { attempts: 2, backoff: soon }, () => {
          if (++calls <= 3) throw new Error("no");
        }),
      ]);
      const { taskId } = await queue.enqueue("mail", { secret: "of-the-payload" });
      await queue.inStatus(taskId, "failed");
      await queue.retry(taskId);
      await queue.inStatus(taskId, "completed");
      const all = await atLeast(6);
      expect(of(all, taskId)).toEqual([
        "created",
        "retried",
        "failed",
        "retried",
        "retried",
        "completed",
      ]);
      expect(all[0]).toMatchObject({ kind: "task", name: "mail", tenant: "default" });
      expect(all.at(-1)).toMatchObject({ status: "completed" });
      expect(JSON.stringify(all)).not.toContain("of-the-payload");
    });

    test("of cancels, of lost pods, of what is set aside and of what is taken back", async () => {
      if (!canRecord) return;
      await record();
      const { taskId: cancelled } = await queue.enqueue("mail", 1);
      await queue.cancel(cancelled);
      const { taskId: orphan } = await queue.enqueue("lost", 2);
      await queue.beat("pod-1");
      const claims = await queue.claim("pod-1", ["lost"]);
      await queue.recover("pod-1", claims);
      const { taskId: aside } = await queue.enqueue("aside", 3);
      await database.write([sql`update ${rowsOf} set parked = 6 where task_id = ${aside}`]);
      await database.write([sql`update ${rowsOf} set parked = 0 where task_id = ${aside}`]);
      await database.write([sql`delete from ${rowsOf} where task_id = ${aside}`]);
      const all = await atLeast(8);
      expect(of(all, cancelled)).toEqual(["created", "cancelled"]);
      expect(of(all, orphan)).toEqual(["created", "retried"]);
      expect(of(all, aside)).toEqual(["created", "set_aside", "resumed", "deleted"]);
    });

    test("of one statement are one row, where the store can tell statements apart", async () => {
      if (!canRecord) return;
      await record();
      const rows = async () =>
        Number(
          (await database.read(sql`select count(*) as count from ${table("change")}`))[0]!["count"],
        );
      await queue.enqueueMany("mail", [1, 2, 3]);
      expect(await rows()).toBe(database.writesAtOnce ? 1 : 3);
      const all = await atLeast(3, { limit: 1 });
      expect(new Set(all.map(({ id }) => id)).size).toBe(3);
      // Claims aren't told, and neither is progress.
      await queue.beat("pod-1");
      await queue.claim("pod-1", ["mail"], 3);
      await database.write([sql`update ${rowsOf} set progress = '1'`]);
      expect(await rows()).toBe(database.writesAtOnce ? 1 : 3);
    });

    test("of sessions and turns are told with what stores them, and the tenant of a turn is known", async () => {
      if (!canRecord) return;
      await record();
      const session = table("session");
      const turn = table("turn");
      const insertTurn = (epoch: number, attempt: number, outcome: string) =>
        sql`insert into ${turn} (session_id, epoch, attempt, agent, began_at, ended_at, outcome)
          values ('s1', ${epoch}, ${attempt}, 'helper', 1, 2, ${outcome})`;
      const setTurn = (epoch: number | null) =>
        sql`update ${session} set turn_epoch = ${epoch}, turn_agent = 'helper' where session_id = 's1'`;
      // As the flush of an archive may do: the turn is stored before its session.
      await database.write([
        insertTurn(1, 1, "lost"),
        sql`insert into ${session} (session_id, tenant, log_id, last_offset, header, created_at, active_at,
          turn_epoch, turn_agent) values ('s1', 'acme', 1, 1, '{}', 1, 1, ${1}, 'helper')`,
      ]);
      await database.write([insertTurn(1, 2, "completed"), setTurn(null)]);
      await database.write([setTurn(2)]);
      await database.write([insertTurn(2, 1, "stopped"), setTurn(null)]);
      await database.write([insertTurn(3, 1, "cut")]);
      await database.write([
        sql`update ${session} set status = 'archived' where session_id = 's1'`,
      ]);
      await database.write([sql`update ${session} set status = 'active' where session_id = 's1'`]);
      await database.write([sql`update ${session} set last_seq = 7 where session_id = 's1'`]);
      const all = await atLeast(10);
      expect(of(all, "s1")).toEqual(["created", "archived", "resumed"]);
      expect(of(all, "s1/1")).toEqual(["created", "retried", "completed"]);
      expect(of(all, "s1/2")).toEqual(["created", "cancelled"]);
      expect(of(all, "s1/3")).toEqual(["created", "failed"]);
      expect(all).toHaveLength(10);
      expect(new Set(all.map(({ tenant }) => tenant))).toEqual(new Set(["acme"]));
      expect(all.find(({ change }) => change === "retried")).toMatchObject({ attempt: 1 });
      expect(await readAll({ kinds: ["session"], tenant: "acme" })).toHaveLength(3);
      expect(await readAll({ tenant: "other" })).toEqual([]);
    });

    test("can be filtered, and an empty page still moves on", async () => {
      if (!canRecord) return;
      await record();
      await queue.enqueueMany("mail", [1, 2]);
      await queue.enqueue("ship", 3);
      await atLeast(3);
      expect((await readAll({ names: ["ship"] })).map(({ name }) => name)).toEqual(["ship"]);
      expect(await readAll({ names: ["ship"], kinds: ["run"] })).toEqual([]);
      const empty = await reader().page({ names: ["none"] });
      expect(empty.changes).toEqual([]);
      expect((await reader().page({ after: empty.cursor })).changes).toEqual([]);
      await expect(reader().page({ kinds: ["tasks" as never] })).rejects.toMatchObject({
        code: "invalid_option",
      });
    });

    test("from now on, and as a loop that a signal ends", async () => {
      if (!canRecord) return;
      await record();
      await queue.enqueue("mail", 1);
      await atLeast(1);
      const stop = new AbortController();
      const seen: RecordedChange[] = [];
      const { cursor } = await reader().page({ after: "now" });
      const following = (async () => {
        for await (const change of reader()({ after: cursor, signal: stop.signal })) {
          seen.push(change);
          if (seen.length === 2) stop.abort();
        }
      })();
      const two = await queue.enqueueMany("mail", [2, 3]);
      await queue.until("two changes", () => seen.length === 2, { stepMs: 100 });
      await queue.outcome(following, { stepMs: 100 });
      expect(new Set(seen.map(({ id }) => id))).toEqual(new Set(two.map(({ taskId }) => taskId)));
    });

    test("of a transaction of a caller's are told with its commit, and never without", async () => {
      if (!canRecord || !kind.callers) return;
      await record();
      const caller = await openCaller();
      for (const end of ["rollback", "commit"]) {
        await caller.begin();
        await queue.enqueue("mail", end, { tx: caller.handle });
        expect(await readAll()).toEqual([]);
        await caller.exec(end);
      }
      expect(await atLeast(1)).toHaveLength(1);
    });

    test("are pruned in batches, and a cursor that is too old is told so", async () => {
      if (!canRecord) return;
      await record();
      for (let at = 0; at < 5; at++) await queue.enqueue("mail", at);
      const all = await atLeast(5);
      const old = all.slice(0, 3).map(({ id }) => `%${id}%`);
      const changes = table("change");
      for (const id of old) {
        await database.write([
          sql`update ${changes} set at = at - ${keepMs + 1_000} where subjects like ${id}`,
        ]);
      }
      await leader(2).pass();
      expect(await readAll()).toHaveLength(2);
      // All after the third are there.
      expect(await readAll({ after: all[2]!.cursor })).toHaveLength(2);
      const tooOld = reader().page({ after: all[1]!.cursor });
      await expect(tooOld).rejects.toMatchObject({ code: "cursor_expired" });
      const { oldest } = await tooOld.then(
        () => ({}) as never,
        (error: unknown) => (error as FlotillaError).details as { oldest: string },
      );
      expect(await readAll({ after: oldest })).toHaveLength(2);
    });

    test("of a time without recording are a gap that cursors are told of", async () => {
      if (!canRecord) return;
      await record();
      await queue.enqueue("mail", 1);
      const [first] = await atLeast(1);
      await record(false);
      await queue.enqueue("mail", 2);
      await record();
      const { taskId } = await queue.enqueue("mail", 3);
      await expect(reader().page({ after: first!.cursor })).rejects.toMatchObject({
        code: "cursor_expired",
      });
      // What was recorded before counts as pruned.
      expect((await atLeast(1)).map(({ id }) => id)).toEqual([taskId]);
      await leader().pass();
      expect(await database.read(sql`select 1 from ${table("change")}`)).toHaveLength(1);
      await record(false);
      await leader().pass();
      expect(await database.read(sql`select 1 from ${table("change")}`)).toEqual([]);
    });

    test("are refused for cursors that aren't of this store", async () => {
      if (!canRecord) return;
      await record();
      await queue.enqueue("mail", 1);
      const [{ cursor }] = (await atLeast(1)) as [RecordedChange];
      const [life] = cursor.split(".");
      for (const after of ["", "x", `${life}.1`, `${life}.-1.0`, `${life}.1.1.1.1`]) {
        await expect(reader().page({ after })).rejects.toMatchObject({ code: "invalid_option" });
      }
      const ahead = reader().page({ after: `${life}.${Number.MAX_SAFE_INTEGER}.0` });
      await expect(ahead).rejects.toMatchObject({ code: "cursor_expired" });
    });

    test("begin a new life where the store was restored on another server", async () => {
      if (!canRecord) return;
      await record();
      await queue.enqueue("mail", 1);
      const [first] = await atLeast(1);
      await leader().pass();
      expect(await readAll()).toHaveLength(1);
      await database.write([sql`update ${table("change_state")} set high = ${2 ** 50}`]);
      await expect(reader().page()).rejects.toMatchObject({ code: "unavailable" });
      await leader().pass();
      await expect(reader().page({ after: first!.cursor })).rejects.toMatchObject({
        code: "cursor_expired",
      });
      const { taskId } = await queue.enqueue("mail", 2);
      expect((await atLeast(1)).map(({ id }) => id)).toEqual([taskId]);
    });

    test("are all told, once or more and in order, while answers are lost", async () => {
      if (!canRecord) return;
      await record();
      const random = seededRandom(7);
      const lossy: Database = {
        ...database,
        async write(statements, options) {
          const fate = random.uint32() % 6;
          if (fate === 0) throw new FlotillaError("unknown_outcome", "lost before");
          const tables = await database.write(statements, options);
          if (fate === 1) throw new FlotillaError("unknown_outcome", "lost after");
          return tables;
        },
      };
      const client = queue.client({ database: lossy });
      let calls = 0;
      await queue.work(
        "pod-1",
        [
          // Any number of them may fail in a row, and each is to end well.
          task("mail", { attempts: 100, backoff: soon }, () => {
            if (++calls % 3 === 0) throw new Error("no");
          }),
        ],
        { database: lossy },
      );
      const ids: string[] = [];
      for (let at = 0; at < 12; at++) {
        ids.push((await queue.outcome(client.enqueue("mail", at), { stepMs: 10 })).taskId);
      }
      for (const id of ids) {
        await queue.until("its end", async () => (await queue.get(id))?.status === "completed", {
          stepMs: 50,
        });
      }
      const all = await readUntil((seen) => ids.every((id) => of(seen, id).at(-1) === "completed"));
      for (const id of ids) {
        const told = of(all, id);
        expect(told[0]).toBe("created");
        expect(told.slice(1, -1).every((change) => change === "retried")).toBe(true);
        expect(told.filter((change) => change === "created")).toHaveLength(1);
      }
      client.close();
    });

    describe("beside transactions that stay open", () => {
      /** A caller's transaction that has written something, so that it has a number. */
      const openTransaction = async () => {
        const caller = await openCaller();
        await caller.begin();
        return {
          enqueue: (name: string) => queue.enqueue(name, 1, { tx: caller.handle }),
          cancel: (taskId: string) =>
            caller.exec(
              `update flotilla.task set status = 'cancelled' where task_id = '${taskId}'`,
            ),
          end: (how: "commit" | "rollback") => caller.exec(how),
        };
      };
      const isApt = () => canRecord && kind.callers === true && database.writesAtOnce === true;

      test("none is passed: a change that commits late is told before those that waited for it", async () => {
        if (!isApt()) return;
        await record();
        const slow = await openTransaction();
        const early = await slow.enqueue("slow");
        const { taskId } = await queue.enqueue("fast", 2);
        // The fast one is committed, and held back.
        expect(await queue.get(taskId)).toBeDefined();
        const { cursor, changes } = await reader().page();
        expect(changes).toEqual([]);
        await slow.end("commit");
        const after = await atLeast(2, { after: cursor });
        expect(after.map(({ id }) => id).toSorted()).toEqual([early.taskId, taskId].toSorted());
      });

      test("one that is rolled back, or whose connection is cut, holds nothing back any more", async () => {
        if (!isApt()) return;
        await record();
        const slow = await openTransaction();
        await slow.enqueue("slow");
        const { taskId } = await queue.enqueue("fast", 2);
        expect(await readAll()).toEqual([]);
        await slow.end("rollback");
        expect((await atLeast(1)).map(({ id }) => id)).toEqual([taskId]);
      });

      test("two changes of a task are in their order, though the later one's transaction is older", async () => {
        if (!isApt()) return;
        await record();
        const older = await openTransaction();
        await older.enqueue("slow");
        const { taskId } = await queue.enqueue("fast", 2);
        // Between the two, so that only one of them is behind the oldest that is open.
        const between = await openTransaction();
        await between.enqueue("between");
        const { taskId: second } = await queue.enqueue("fast", 3);
        await older.cancel(taskId);
        await older.cancel(second);
        await older.end("commit");
        const seen = await readAll();
        await between.end("commit");
        seen.push(
          ...(await readUntil((all) => all.length + seen.length >= 6, {
            ...(seen.length > 0 && { after: seen.at(-1)!.cursor }),
          })),
        );
        expect(of(seen, taskId)).toEqual(["created", "cancelled"]);
        expect(of(seen, second)).toEqual(["created", "cancelled"]);
      });
    });

    test("are all told in order to a reader beside many writers, some slow, some undone", async () => {
      if (!canRecord || !kind.callers) return;
      await record();
      const random = seededRandom(11);
      const next = (below: number) => random.uint32() % below;
      const isPostgres = database.writesAtOnce === true;
      const name = isPostgres ? "flotilla.task" : "flotilla_task";
      /** What each task has committed, in its order. */
      const committed = new Map<string, string[]>();
      const seen: RecordedChange[] = [];
      let writing = true;
      let deadlineMs = Infinity;
      const follow = async () => {
        let after: string | undefined;
        for (let isLast = false; performance.now() < deadlineMs;) {
          const page = await reader().page({ limit: 3, ...(after !== undefined && { after }) });
          seen.push(...page.changes);
          after = page.cursor;
          if (page.more) continue;
          const told = [...committed].every(([id, all]) => of(seen, id).length >= all.length);
          if (isLast && told) return;
          isLast = !writing;
          await new Promise((resolve) => setTimeout(resolve, 1));
        }
      };
      const following = follow();
      const known: string[] = [];
      const write = async (writer: number): Promise<void> => {
        const caller = await openCaller();
        for (let round = 0; round < 12; round++) {
          await caller.begin();
          const changed: [string, string][] = [];
          for (let at = 0; at <= next(3); at++) {
            const target = known[next(Math.max(1, known.length))];
            if (target === undefined || next(2) === 0) {
              const id = `${writer}-${round}-${at}`;
              await caller.exec(`insert into ${name} (task_id, name) values ('${id}', 'mail')`);
              changed.push([id, "created"]);
            } else if (changed.length === 0) {
              // One task for a transaction, so that no two wait for each other.
              const [row] = (await caller.all(
                `select status from ${name} where task_id = '${target}'${isPostgres ? " for update" : ""}`,
              )) as { status: string }[];
              const to = row?.status === "pending" ? "failed" : "pending";
              await caller.exec(`update ${name} set status = '${to}' where task_id = '${target}'`);
              changed.push([target, to === "pending" ? "retried" : "failed"]);
            }
            if (isPostgres && next(4) === 0) {
              await new Promise((resolve) => setTimeout(resolve, next(4)));
            }
          }
          const isUndone = next(5) === 0;
          // Noted before the lock goes, so that another writer's change of it is noted after this one.
          if (!isUndone) {
            for (const [id, change] of changed) {
              committed.set(id, [...(committed.get(id) ?? []), change]);
            }
          }
          await caller.exec(isUndone ? "rollback" : "commit");
          if (!isUndone) known.push(...changed.map(([id]) => id));
        }
      };
      await Promise.all(Array.from({ length: isPostgres ? 5 : 1 }, (_, writer) => write(writer)));
      writing = false;
      deadlineMs = performance.now() + 90_000;
      await following;
      for (const [id, all] of committed) expect(of(seen, id)).toEqual(all);
      expect(seen).toHaveLength([...committed.values()].flat().length);
    });
  });
}
