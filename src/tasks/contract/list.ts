import fc from "fast-check";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import type { Database, Row } from "../../store/database.ts";
import { now, rows, sql, table } from "../../store/sql.ts";
import { walkBounds } from "../../store/walk.ts";
import type { TaskFilter } from "../inspect/filter.ts";
import { maxFew } from "../inspect/list.ts";
import { type PendingState, pendingStates, type TaskStatus, taskStatuses } from "../rows.ts";
import { parked } from "../sql/task-state.ts";
import type { ListOptions } from "../tasks.ts";
import { openTasks, rowsOf, type TasksHarness } from "./harness.ts";

const many = 25_000;

/** What lists of tasks promise on every store: each filter, and how far a page is searched. */
export function listContract(kind: StoreKind): void {
  describe(`lists of tasks on ${kind.name}`, () => {
    let queue: TasksHarness;
    beforeEach(async () => {
      queue = await openTasks(kind);
      await queue.beat("pod-1");
    });
    afterEach(() => queue.close());

    const idOf = (at: number) => `t${String(at).padStart(7, "0")}`;

    /** All ids of a list, by its pages. */
    const all = async (filter: ListOptions, list = queue.list): Promise<string[]> => {
      const found: string[] = [];
      for (let cursor: string | null | undefined; cursor !== null;) {
        const page = await list({ ...filter, ...(cursor !== undefined && { cursor }) });
        found.push(...page.tasks.map(({ taskId }) => taskId));
        expect(page.lookedBackTo === null).toBe(page.next === null);
        cursor = page.next;
      }
      return found;
    };

    /** Counts the entries of indexes that pages read: those of walks, and ids of sets that may be few. */
    const counting = () => {
      let entries = 0;
      const read: Database["read"] = async (statement, options) => {
        const found = await queue.database.read(statement, options);
        const isSet = (row: Row) => Object.keys(row).length === 1 && "task_id" in row;
        for (const row of found) entries += isSet(row) ? 1 : Number(row["walked"] ?? 0);
        return found;
      };
      const client = queue.client({ database: { ...queue.database, read } });
      return {
        client,
        entries() {
          const counted = entries;
          entries = 0;
          return counted;
        },
      };
    };

    const fill = async (count: number, status: TaskStatus, from = 0) => {
      for (let at = from; at < from + count; at += 5_000) {
        const length = Math.min(5_000, from + count - at);
        await queue.database.write([
          sql`insert into ${rowsOf} (task_id, name, status, created_at, claimed_by)
            select task_id, name, ${status}, created_at, 'pod-1' from ${rows(
              { task_id: "text", name: "text", created_at: "integer" },
              Array.from({ length }, (_, nth) => [idOf(at + nth), "filler", at + nth]),
            )} fresh where true`,
        ]);
      }
    };

    describe("with more tasks than a page may search", () => {
      beforeEach(() => fill(many, "completed"));

      test("a filter that matches nothing stops after 20,000 entries, says where, and goes on from there", async () => {
        const { client, entries } = counting();
        const first = await client.list({ name: "absent" });
        expect(first).toMatchObject({ tasks: [], lookedBackTo: many - walkBounds.entries });
        expect(first.next).not.toBeNull();
        expect(entries()).toBe(walkBounds.entries);
        const second = await client.list({ name: "absent", cursor: first.next! });
        expect(second).toEqual({ tasks: [], next: null, lookedBackTo: null });
        expect(entries()).toBe(many - walkBounds.entries);
        client.close();
      });

      test("what is beyond the first pages is found by the next ones", async () => {
        await queue.database.write([
          sql`update ${rowsOf} set name = 'rare' where task_id in (${idOf(3)}, ${idOf(24_000)})`,
        ]);
        const page = await queue.list({ name: "rare" });
        expect(page.tasks.map(({ taskId }) => taskId)).toEqual([idOf(24_000)]);
        expect(await all({ name: "rare" })).toEqual([idOf(24_000), idOf(3)]);
      });

      test("no piece begins later than 100 ms after the first was read", async () => {
        let pieces = 0;
        const read: Database["read"] = async (statement, options) => {
          queue.clock.jump(60);
          pieces++;
          return queue.database.read(statement, options);
        };
        const client = queue.client({ database: { ...queue.database, read } });
        const page = await client.list({ name: "absent", limit: 10 });
        expect(pieces).toBe(3);
        expect(page).toMatchObject({ tasks: [], lookedBackTo: many - 11 - 2 * walkBounds.piece });
        client.close();
      });

      test("a page of all reads no more than the page", async () => {
        const { client, entries } = counting();
        expect((await client.list({ limit: 20 })).tasks).toHaveLength(20);
        expect(entries()).toBe(21);
        client.close();
      });

      test("failed and running tasks, and those of a pod or a key, are found wherever they are", async () => {
        const mark = (at: number, set: ReturnType<typeof sql>) =>
          queue.database.write([sql`update ${rowsOf} set ${set} where task_id = ${idOf(at)}`]);
        await mark(1, sql`status = 'failed'`);
        await mark(2, sql`status = 'claimed', concurrency_key = 'key/filler/k'`);
        await mark(3, sql`status = 'claimed', claimed_by = 'pod-2'`);
        await mark(4, sql`unique_key = 'mine'`);
        await mark(5, sql`status = 'pending', run_at = 1, parked = 1`);
        await mark(6, sql`status = 'pending', parked = 3, blocked_by = 'key/filler/k'`);
        const { client, entries } = counting();
        const expected: [TaskFilter, number[]][] = [
          [{ status: "failed" }, [1]],
          [{ status: "claimed" }, [3, 2]],
          [{ pod: "pod-2" }, [3]],
          [{ status: "claimed", scope: "key/filler/k" }, [2]],
          [{ name: "filler", key: "mine" }, [4]],
          [{ name: "filler", key: "mine", tenant: "default" }, [4]],
          [{ name: "other", key: "mine" }, []],
          [{ status: "pending" }, [6, 5]],
          [{ status: "pending", name: "filler" }, [6, 5]],
        ];
        for (const [filter, found] of expected) {
          const page = await client.list(filter);
          expect([filter, page.tasks.map(({ taskId }) => taskId)]).toEqual([
            filter,
            found.map(idOf),
          ]);
          expect(page.next).toBeNull();
          expect(entries()).toBeLessThanOrEqual(10);
        }
        client.close();
      });

      test("counts say where they stop, and count all if that is requested", async () => {
        await fill(3, "failed", many);
        const bounded = await queue.stats();
        expect(bounded.byStatus).toMatchObject({ completed: 9_997, failed: 3, pending: 0 });
        expect(bounded.atLeast).toEqual(["completed", "cancelled"]);
        const exact = await queue.stats({ exact: true });
        expect(exact.byStatus).toMatchObject({ completed: many, failed: 3 });
        expect(exact.byName["filler"]).toMatchObject({ completed: many, failed: 3 });
        expect(exact.atLeast).toEqual([]);
      });
    });

    test("more open tasks than a page may search are searched by pages as well", async () => {
      await fill(many, "pending");
      const { client, entries } = counting();
      for (const filter of [{ status: "pending", tenant: "none" }] as const) {
        const page = await client.list(filter);
        expect(page.tasks).toEqual([]);
        expect(page.next).not.toBeNull();
        expect(entries()).toBe(walkBounds.entries);
      }
      expect(maxFew).toBeLessThan(many);
      const counts = await client.stats();
      expect(counts.byName["filler"]!.pending).toBe(10_000);
      expect(counts.atLeast).toEqual(["pending", "completed", "cancelled"]);
      client.close();
    });

    type Given = {
      id: number;
      name: string;
      status: TaskStatus;
      tenant: string;
      key: string | null;
      scope: string | null;
      pod: string;
      parked: number;
      deaths: number;
    };
    const given = fc.uniqueArray(
      fc.record<Given>({
        id: fc.nat(9_999),
        name: fc.constantFrom("a", "b"),
        status: fc.constantFrom(...taskStatuses),
        tenant: fc.constantFrom("default", "acme"),
        key: fc.constantFrom(null, "k1", "k2"),
        scope: fc.constantFrom(null, "key/a/s"),
        pod: fc.constantFrom("pod-1", "pod-2"),
        parked: fc.constantFrom(...Object.values(parked)),
        deaths: fc.constantFrom(0, 3),
      }),
      { selector: (each) => each.id, maxLength: 30 },
    );
    /** A unique key is one task's. */
    const keyed = (tasks: readonly Given[]): Given[] => {
      const taken = new Set<string>();
      return tasks.map((each) => {
        const key = JSON.stringify([each.tenant, each.name, each.key]);
        const isTaken = taken.has(key);
        taken.add(key);
        return isTaken ? { ...each, key: null } : each;
      });
    };
    const insert = (tasks: readonly Given[]) =>
      queue.database.write([
        sql`delete from ${rowsOf}`,
        sql`insert into ${rowsOf} (task_id, name, status, tenant, unique_key, concurrency_key, claimed_by,
            parked, deaths, limited)
          select task_id, name, status, tenant, unique_key, concurrency_key, claimed_by, parked, deaths, 1
          from ${rows(
            {
              task_id: "text",
              name: "text",
              status: "text",
              tenant: "text",
              unique_key: "text",
              concurrency_key: "text",
              claimed_by: "text",
              parked: "integer",
              deaths: "integer",
            },
            tasks.map((each) => [
              idOf(each.id),
              each.name,
              each.status,
              each.tenant,
              each.key,
              each.scope,
              each.pod,
              each.status === "pending" ? each.parked : 0,
              each.deaths,
            ]),
          )} fresh where true`,
      ]);

    test("hold what each filter names, in order, whichever index serves it", async () => {
      const filters = fc.record(
        {
          name: fc.constantFrom("a", "b"),
          status: fc.constantFrom(...taskStatuses),
          tenant: fc.constantFrom("default", "acme"),
          key: fc.constantFrom("k1", "k3"),
          scope: fc.constantFrom("key/a/s", "key/a/t"),
          from: fc.nat(9_999).map(idOf),
          to: fc.nat(9_999).map(idOf),
        },
        { requiredKeys: [] },
      );
      const pods = fc.constantFrom(undefined, "pod-1", "pod-2");
      await fc.assert(
        fc.asyncProperty(
          given,
          filters,
          pods,
          fc.integer({ min: 1, max: 12 }),
          async (generated, filter, pod, limit) => {
            const tasks = keyed(generated);
            await insert(tasks);
            const { status, ...others } = filter;
            const asked =
              pod === undefined
                ? filter
                : { ...others, pod, ...(status === "claimed" && { status }) };
            const expected = tasks
              .filter((each) => filter.name === undefined || each.name === filter.name)
              .filter((each) => filter.tenant === undefined || each.tenant === filter.tenant)
              .filter((each) => filter.key === undefined || each.key === filter.key)
              .filter((each) => filter.scope === undefined || each.scope === filter.scope)
              .filter((each) => filter.from === undefined || idOf(each.id) >= filter.from)
              .filter((each) => filter.to === undefined || idOf(each.id) <= filter.to)
              .filter((each) =>
                pod === undefined
                  ? status === undefined || each.status === status
                  : each.status === "claimed" && each.pod === pod,
              )
              .map(({ id }) => idOf(id));
            expect(await all({ ...asked, limit })).toEqual(expected.toSorted().toReversed());
          },
        ),
        { numRuns: 60 },
      );
    });

    test("hold what was set aside, and runs at a transition", async () => {
      await fill(6, "pending");
      const mark = (at: number, set: ReturnType<typeof sql>) =>
        queue.database.write([sql`update ${rowsOf} set ${set} where task_id = ${idOf(at)}`]);
      await mark(
        1,
        sql`parked = ${parked.setAside}, name = 'order', flow_version = 1, cursor = 'pay'`,
      );
      await mark(2, sql`parked = ${parked.setAside}`);
      await mark(3, sql`name = 'order', flow_version = 1, cursor = 'pay'`);
      expect(await all({ setAside: true, limit: 1 })).toEqual([2, 1].map(idOf));
      expect(await all({ setAside: true, name: "order" })).toEqual([idOf(1)]);
      expect(await all({ at: "pay" })).toEqual([3, 1].map(idOf));
      expect(await all({ at: "pay", name: "order", limit: 1 })).toEqual([3, 1].map(idOf));
      expect(await all({ at: "pay", setAside: true, status: "pending" })).toEqual([idOf(1)]);
    });

    test("hold pending tasks by how they stand, as they are counted", async () => {
      await fill(9, "pending");
      const mark = (at: number, set: ReturnType<typeof sql>) =>
        queue.database.write([sql`update ${rowsOf} set ${set} where task_id = ${idOf(at)}`]);
      await mark(1, sql`parked = ${parked.untilDue}, run_at = run_at + 86400000`);
      await mark(2, sql`parked = ${parked.untilDue}, run_at = run_at + 86400000, name = 'b'`);
      await mark(3, sql`parked = ${parked.forDependencies}, depends = 1`);
      await mark(4, sql`parked = ${parked.blocked}, blocked_by = 'key/a/k'`);
      await mark(5, sql`parked = ${parked.limited}, limited = 1`);
      await mark(6, sql`deaths = 9`);
      await mark(7, sql`parked = ${parked.setAside}`);
      await mark(8, sql`status = 'completed'`);
      const named: readonly [PendingState, readonly number[]][] = [
        ["delayed", [2, 1]],
        ["waiting", [3]],
        ["blocked", [4]],
        ["alone", [6]],
      ];
      for (const [state, ats] of named)
        expect([state, await all({ state, limit: 1 })]).toEqual([state, ats.map(idOf)]);
      expect(await all({ state: "delayed", name: "b", status: "pending" })).toEqual([idOf(2)]);
      expect(await all({ state: "ready" })).toEqual([5, 0].map(idOf));
      const depth = [...(await queue.depth()).values()];
      for (const state of pendingStates)
        expect([state, depth.reduce((sum, of) => sum + of[state], 0)]).toEqual([
          state,
          (await all({ state })).length,
        ]);
    });

    test("hold what a session, or a run or task, has started", async () => {
      await fill(30, "completed");
      const link = (from: string, what: string, ats: readonly number[]) =>
        queue.database.write([
          sql`insert into ${table("link")} (from_id, to_id, what)
            select from_id, to_id, what from ${rows(
              { from_id: "text", to_id: "text", what: "text" },
              ats.map((at) => [from, idOf(at), what]),
            )} fresh where true`,
        ]);
      await link("one", "session", [1, 5, 9]);
      // Ids of sessions and of schedules are their users' own.
      await link("one", "schedule", [7]);
      await link("one", "task", [8]);
      await link("run-1", "run", [2, 3]);
      await queue.database.write([
        sql`update ${rowsOf} set tenant = 'acme' where task_id = ${idOf(5)}`,
      ]);
      expect(await all({ session: "one", limit: 2 })).toEqual([9, 5, 1].map(idOf));
      expect(await all({ session: "one", tenant: "acme" })).toEqual([idOf(5)]);
      expect(await all({ session: "absent" })).toEqual([]);
      expect(await all({ run: "one" })).toEqual([idOf(8)]);
      expect(await all({ run: "run-1", limit: 1 })).toEqual([3, 2].map(idOf));
      expect(await all({ run: "run-1", status: "failed" })).toEqual([]);
    });

    test("hold the failed tasks of a group of errors", async () => {
      await fill(20, "failed");
      const inGroup: Parameters<typeof queue.client>[0] = {
        inGroup: async (group, { before, from, count }) =>
          group === "g2-0000000000000000"
            ? [11, 7, 3]
                .map(idOf)
                .filter((id) => id < before && id >= from)
                .slice(0, count)
            : [],
      };
      const client = queue.client(inGroup);
      // It was started over since.
      await queue.database.write([
        sql`update ${rowsOf} set status = 'completed' where task_id = ${idOf(7)}`,
      ]);
      const filter = { group: "g2-0000000000000000", limit: 1 };
      expect(await all(filter, client.list)).toEqual([11, 3].map(idOf));
      expect(await all({ group: "g2-1111111111111111" }, client.list)).toEqual([]);
      client.close();
    });

    test("hold what was created within a span of time, both ends of it included", async () => {
      const startMs = queue.clock.now();
      const made: string[] = [];
      for (let at = 0; at < 4; at++) {
        made.push((await queue.enqueue("a", at)).taskId);
        await queue.pass(1_000);
      }
      const [first, second, third, fourth] = made;
      const times = (since?: number, until?: number) =>
        all({
          ...(since !== undefined && { sinceMs: startMs + since }),
          ...(until !== undefined && { untilMs: startMs + until }),
          limit: 2,
        });
      expect(await times()).toEqual([fourth, third, second, first]);
      expect(await times(1_000)).toEqual([fourth, third, second]);
      expect(await times(undefined, 1_000)).toEqual([second, first]);
      expect(await times(1_000, 2_000)).toEqual([third, second]);
      expect(await times(1_001, 1_999)).toEqual([]);
      expect(await times(3_000, 1_000)).toEqual([]);
    });

    test("have the time of rows that were inserted by plain SQL, too", async () => {
      const [row] = await queue.database.read(sql`select ${now} as now`);
      const nowMs = Number(row!["now"]);
      await queue.database.write([sql`insert into ${rowsOf} (name) values ('by hand')`]);
      const span = { sinceMs: nowMs - 1_000, untilMs: nowMs + 600_000 };
      expect(await all({ name: "by hand", ...span })).toHaveLength(1);
      expect(await all({ name: "by hand", untilMs: nowMs - 1_000 })).toEqual([]);
    });

    test.skipIf(kind.encrypts)(
      "hold what has a value in its payload, and no row breaks them",
      async () => {
        const payloads = [
          '{"order":{"id":7}}',
          '{"order":{"id":7.0}}',
          '{"order":{"id":"7"}}',
          '{"order":{"id":true}}',
          '{"order":{"id":1}}',
          '{"order":{"id":null}}',
          '{"order":{}}',
          '{"order":[7]}',
          '{"order":{"id":"it\'s 100% \\"ours\\""}}',
          '{"order":{"id":9007199254740991}}',
          "not json",
          "[1",
          '"\\ud800"',
          "null",
        ];
        await queue.database.write([
          sql`insert into ${rowsOf} (task_id, name, payload)
          select task_id, 'a', payload from ${rows(
            { task_id: "text", payload: "content" },
            payloads.map((payload, at) => [idOf(at), payload]),
          )} fresh where true`,
        ]);
        const having = async (value: string | number | boolean | null, more: TaskFilter = {}) =>
          (await all({ name: "a", sinceMs: 0, payload: { "order.id": value }, ...more })).map(
            (id) => Number(id.slice(1)),
          );
        expect(await having(7)).toEqual([1, 0]);
        expect(await having("7")).toEqual([2]);
        expect(await having(true)).toEqual([3]);
        expect(await having(false)).toEqual([]);
        expect(await having(1)).toEqual([4]);
        expect(await having(null)).toEqual([5]);
        expect(await having('it\'s 100% "ours"')).toEqual([8]);
        expect(await having(Number.MAX_SAFE_INTEGER)).toEqual([9]);
        expect(await having(7, { name: "b" })).toEqual([]);
        expect(await having(7, { payload: { "order.id": 7, other: 1 } })).toEqual([]);
        expect(await having(7, { payload: { absent: null } })).toEqual([]);
      },
    );

    test.runIf(kind.encrypts)("refuse to look into payloads that are encoded", async () => {
      const filter = { name: "a", sinceMs: 0, payload: { id: 7 } };
      await expect(queue.list(filter)).rejects.toMatchObject({
        code: "unsupported",
        message: expect.stringContaining("a store with a codec"),
      });
    });

    const deep = Array.from({ length: 50 }, () => "a").join(".");
    const ofPayload = (payload: unknown) => ({ name: "a", sinceMs: 0, payload });
    test.skipIf(kind.encrypts).each<[object, string]>([
      [{ name: "x".repeat(10_000) }, "name must be 1 to 200 characters"],
      [{ name: "" }, "name must be 1 to 200 characters"],
      [{ from: "x".repeat(501) }, "from must be 1 to 500 characters"],
      [{ setAside: false }, "setAside must be true, or left out"],
      [{ setAside: true, status: "failed" }, "setAside can't be combined"],
      [{ setAside: true, pod: "p" }, "setAside can't be combined"],
      [{ state: "odd" }, "state must be"],
      [{ state: "ready", status: "failed" }, "state can't be combined"],
      [{ state: "ready", pod: "p" }, "state can't be combined"],
      [{ state: "ready", group: "g2-0" }, "state can't be combined"],
      [{ state: "ready", setAside: true }, "state can't be combined"],
      [{ tenant: "x".repeat(501) }, "tenant must be 1 to 500 characters"],
      [{ key: "a\u0000b" }, "key must be 1 to 500 characters of text that databases can store"],
      [{ podd: "pod-1" }, "unknown option `podd`, did you mean `pod`?"],
      [{ sinceMs: -1 }, "sinceMs must be"],
      [{ untilMs: 2 ** 53 }, "untilMs must be"],
      [{ pod: "pod-1", status: "failed" }, "pod can't be combined"],
      [{ group: "g2-0", status: "pending" }, "group can't be combined"],
      [{ session: "s", run: "r" }, "session and run can't be combined"],
      [{ payload: { id: 7 } }, "payload needs `name` and `sinceMs`"],
      [{ name: "a", payload: { id: 7 } }, "payload needs `name` and `sinceMs`"],
      [ofPayload({}), "payload must have 1 to 5 paths"],
      [ofPayload("id"), "payload must have 1 to 5 paths"],
      [ofPayload({ __proto__x: {} }), "the value of __proto__x must be"],
      [ofPayload(JSON.parse('{"__proto__":1}')), 'payload: "__proto__" must be a path'],
      [ofPayload(JSON.parse('{"a.__proto__":1}')), "must be a path"],
      [ofPayload({ 'a"b': 1 }), "must be a path"],
      [ofPayload({ "a'b": 1 }), "must be a path"],
      [ofPayload({ "a%": 1 }), "must be a path"],
      [ofPayload({ "": 1 }), "must be a path"],
      [ofPayload({ [deep]: 1 }), "must be a path of 1 to 5 names"],
      [ofPayload({ id: [1] }), "the value of id must be"],
      [ofPayload({ id: 2 ** 53 }), "within 2^53"],
      [ofPayload({ id: "x".repeat(1_001) }), "text of at most 1000 characters"],
      [ofPayload({ id: "\ud800" }), "the value of id must be"],
    ])("are refused for %j", async (filter, message) => {
      await expect(queue.list(filter as object)).rejects.toMatchObject({
        code: "invalid_option",
        message: expect.stringContaining(message),
      });
    });

    test("go on only with a cursor of the same filter", async () => {
      await fill(3, "completed");
      const { next } = await queue.list({ name: "filler", limit: 1 });
      expect((await queue.list({ name: "filler", limit: 2, cursor: next! })).tasks).toHaveLength(2);
      for (const asked of [
        { cursor: next! },
        { name: "other", cursor: next! },
        { name: "filler", status: "completed", cursor: next! },
        { name: "filler", cursor: idOf(2) },
        { name: "filler", cursor: "made up" },
      ] satisfies ListOptions[]) {
        await expect(queue.list(asked)).rejects.toMatchObject({
          code: "invalid_option",
          message: expect.stringContaining("cursor must be the `next` of an earlier page"),
        });
      }
    });

    test("are dropped where their caller has hung up", async () => {
      const page = queue.list({ signal: AbortSignal.abort() });
      await expect(page).rejects.toMatchObject({ code: "cancelled" });
    });
  });
}
