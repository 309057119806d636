import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { StoreKind } from "../../store/contract/database.ts";
import { rows, sql, table } from "../../store/sql.ts";
import {
  createLimitedClaims,
  firstRound,
  readCandidates,
  type TenantRound,
  servedLast,
} from "../concurrency/candidates.ts";
import { openTasks, type TasksHarness, rowsOf } from "./harness.ts";
import { toClaim } from "../rows.ts";
import { lockLimits, claimLimited, unblock } from "../sql/concurrency.ts";

type Given = {
  taskId: string;
  tenant?: string;
  key?: string;
  priority?: number;
  createdAtMs?: number;
};

/** What concurrency limits promise on every store, statement by statement. */
export function concurrencyContract(kind: StoreKind): void {
  describe(`concurrency limits on ${kind.name}`, () => {
    let queue: TasksHarness;
    let lastCall = 0;
    beforeEach(async () => {
      queue = await openTasks(kind);
      await queue.beat("pod-1", "pod-2");
    });
    afterEach(() => queue.close());

    const insert = (given: readonly Given[]) =>
      queue.database.write([
        sql`insert into ${rowsOf} (task_id, name, tenant, concurrency_key, limited, parked, priority, created_at, run_at)
          select task_id, 'mail', tenant, concurrency_key, 1, 4, priority, created_at, 0 from ${rows(
            {
              task_id: "text",
              tenant: "text",
              concurrency_key: "text",
              priority: "integer",
              created_at: "integer",
            },
            given.map(({ taskId, tenant = "default", key, priority = 0, createdAtMs = 1 }) => [
              taskId,
              tenant,
              key === undefined ? null : `key/mail/${key}`,
              priority,
              createdAtMs,
            ]),
          )} fresh where true`,
      ]);

    /** Claims as a pod would, and tells how the round stands then. */
    const claim = async (limit: number, round: TenantRound = firstRound, keyLimit = 1) => {
      const tries = await readCandidates(queue.database, {
        names: ["mail"],
        round,
        limit,
        fromPriority: 100,
        held: [],
        limitOf: () => keyLimit,
      });
      if (tries.candidates.length === 0) return { ids: [], round: tries.round, blocked: 0 };
      const call = { podId: "pod-1", call: ++lastCall, names: ["mail"], limit };
      const { statements, claimedAt, blockedAt } = claimLimited(call, tries.candidates);
      const tables = await queue.database.write(statements);
      const claimed = tables[claimedAt]!.map((row) => toClaim(row, queue.clock.now()));
      const ids = new Set(claimed.map(({ taskId }) => taskId));
      const after = servedLast(tries.candidates, ids) ?? tries.round.after;
      return {
        ids: claimed.map(({ taskId }) => taskId).toSorted(),
        round: { ...tries.round, after },
        blocked: blockedAt === undefined ? 0 : tables[blockedAt]!.length,
      };
    };
    const end = (...taskIds: string[]) =>
      queue.database.write(
        taskIds.map((id) => sql`update ${rowsOf} set status = 'completed' where task_id = ${id}`),
      );

    test("as many of a key are claimed as may run, and the others are blocked until one has ended", async () => {
      await insert([
        { taskId: "a1", key: "a", createdAtMs: 1 },
        { taskId: "a2", key: "a", createdAtMs: 2 },
        { taskId: "a3", key: "a", createdAtMs: 3 },
        { taskId: "b1", key: "b", createdAtMs: 4 },
      ]);
      expect(await claim(10, firstRound, 2)).toMatchObject({ ids: ["a1", "a2", "b1"], blocked: 1 });
      expect(await claim(10, firstRound, 2)).toMatchObject({ ids: [] });
      expect(await queue.row("a3")).toMatchObject({ parked: 3, blocked_by: "key/mail/a" });
      await end("a1");
      await queue.database.write([lockLimits(["key/mail/a"]), unblock(["key/mail/a"], 5)]);
      expect(await queue.row("a3")).toMatchObject({ parked: 4, blocked_by: null });
      expect((await claim(10, firstRound, 2)).ids).toEqual(["a3"]);
    });

    test("nothing is unblocked where no slot is free", async () => {
      await insert(["a1", "a2"].map((taskId) => ({ taskId, key: "a" })));
      await claim(10);
      await queue.database.write([lockLimits(["key/mail/a"]), unblock(["key/mail/a"], 5)]);
      expect(await queue.row("a2")).toMatchObject({ parked: 3 });
    });

    test("tenants take turns, however long the queue of one is, and one after the other where there are more than fit", async () => {
      await insert([
        ...[1, 2, 3, 4, 5].map((n) => ({ taskId: `a${n}`, tenant: "acme", createdAtMs: n })),
        { taskId: "b6", tenant: "beta", createdAtMs: 6 },
        { taskId: "c7", tenant: "city", createdAtMs: 7 },
      ]);
      const first = await claim(2);
      expect(first.ids).toEqual(["a1", "b6"]);
      const second = await claim(2, first.round);
      expect(second.ids).toEqual(["a2", "c7"]);
      expect((await claim(9, second.round)).ids).toEqual(["a3", "a4", "a5"]);
    });

    test("every tenant has its turn where there are more of them than one claim reads", async () => {
      const tenants = Array.from({ length: 150 }, (_, at) => `t${String(at).padStart(3, "0")}`);
      await insert(
        tenants.flatMap((tenant) => [1, 2, 3].map((n) => ({ taskId: `${tenant}-${n}`, tenant }))),
      );
      const served = new Map<string, number>();
      let round = firstRound;
      for (let taken = 0; taken < 300;) {
        const claimed = await claim(50, round);
        expect(claimed.ids.length).toBeGreaterThan(0);
        taken += claimed.ids.length;
        for (const id of claimed.ids)
          served.set(id.slice(0, 4), (served.get(id.slice(0, 4)) ?? 0) + 1);
        ({ round } = claimed);
      }
      expect(served.size).toBe(150);
    });

    test("a tenant keeps to its limit, and to that of a key that it shares with others", async () => {
      await queue.limits.set("tenant/acme", 2);
      await insert([
        ...[1, 2, 3].map((n) => ({ taskId: `a${n}`, tenant: "acme", createdAtMs: n })),
        { taskId: "ak", tenant: "acme", key: "k", priority: 1 },
        { taskId: "bk", tenant: "beta", key: "k" },
      ]);
      expect((await claim(10)).ids).toEqual(["a1", "ak"]);
      expect((await claim(10)).ids).toEqual([]);
      await end("ak");
      await queue.database.write([lockLimits(["key/mail/k"]), unblock(["key/mail/k"], 1)]);
      expect((await claim(10)).ids).toEqual(["a2", "bk"]);
      expect(await queue.limits.tenants()).toEqual([
        { tenant: "acme", limit: 2, running: 2, ready: 1, blocked: 0 },
        { tenant: "beta", limit: null, running: 1, ready: 0, blocked: 0 },
      ]);
    });

    test("a claim beside another of the same pod tries other tasks, and those again that the other left", async () => {
      await insert([
        ...[1, 2, 3].map((n) => ({ taskId: `a${n}`, tenant: "acme", createdAtMs: n })),
        ...[1, 2, 3].map((n) => ({ taskId: `b${n}`, tenant: "beta", createdAtMs: n })),
      ]);
      const { database, random } = queue;
      const limited = createLimitedClaims({ database, random });
      const prepare = () =>
        limited.prepare({ podId: "pod-1", call: ++lastCall, names: ["mail"], limit: 1 }).prepared;
      const send = async (claiming: Awaited<ReturnType<typeof prepare>>) =>
        claiming!.applyTables(await database.write(claiming!.statements));
      // Each tries twice as many as it may claim.
      const [one, other] = await Promise.all([prepare(), prepare()]);
      expect([...(await send(one)).ids]).toEqual(["a1"]);
      expect([...(await send(other)).ids]).toEqual(["a2"]);
      one!.settle();
      expect([...(await send(await prepare())).ids]).toEqual(["b1"]);
    });

    test("a key whose limit was deleted after it was read is left to the next claim, which stores it again", async () => {
      await insert([{ taskId: "a1", key: "a" }]);
      await queue.limits.set("key/mail/a", 1);
      const reading = { names: ["mail"], limit: 10, fromPriority: 100, held: [] };
      const { candidates } = await readCandidates(queue.database, {
        ...reading,
        round: firstRound,
        limitOf: () => undefined,
      });
      expect(candidates).toMatchObject([{ taskId: "a1", isStored: true }]);
      await queue.database.write([sql`delete from ${table("task_limit")}`]);
      const call = { podId: "pod-1", call: ++lastCall, names: ["mail"], limit: 10 };
      const { statements, claimedAt } = claimLimited(call, candidates);
      expect((await queue.database.write(statements))[claimedAt]).toEqual([]);
      expect((await claim(10)).ids).toEqual(["a1"]);
      expect(await queue.limits.get("key/mail/a")).toMatchObject({ limit: 1, running: 1 });
    });

    test("of two claims at the same moment that try different tasks of a key, one finds it full", async () => {
      for (let times = 0; times < 20; times++) {
        const key = `k${times}`;
        const given = ["one", "other"].map((each) => ({ taskId: `${each}-${times}`, key }));
        await insert(given.map((each) => ({ ...each, tenant: "acme" })));
        // Where the limit is stored already, nothing but its lock comes between the two.
        await queue.limits.set(`key/mail/${key}`, 1);
        await Promise.all(
          given.map(({ taskId }, at) => {
            const scope = `key/mail/${key}`;
            const candidate = { taskId, tenant: "acme", scope, scopeLimit: 1 };
            const call = { podId: `pod-${at + 1}`, call: ++lastCall, names: ["mail"], limit: 1 };
            return queue.database.write(claimLimited(call, [candidate]).statements);
          }),
        );
        const ofKey = sql`concurrency_key = ${`key/mail/${key}`}`;
        expect(await queue.count(sql`${ofKey} and status = 'claimed'`)).toBe(1);
        expect(await queue.count(sql`${ofKey} and parked = 3`)).toBe(1);
      }
    });

    test("two claims at the same moment take no more than one would", async () => {
      const keys = Array.from({ length: 12 }, (_, at) => `k${at % 4}`);
      for (let times = 0; times < 5; times++) {
        await queue.database.write([
          sql`delete from ${rowsOf}`,
          sql`delete from ${table("task_limit")}`,
        ]);
        await insert(keys.map((key, at) => ({ taskId: `t${at}`, tenant: `x${at % 2}`, key })));
        await queue.limits.set("tenant/x0", 3);
        await Promise.all([1, 2, 3, 4].map(() => claim(10, firstRound, 2)));
        const running = await queue.database.read(
          sql`select concurrency_key, tenant, count(*) as tasks from ${rowsOf} where status = 'claimed'
            group by concurrency_key, tenant`,
        );
        const count = (column: string, value: string) =>
          running
            .filter((row) => row[column] === value)
            .reduce((sum, row) => sum + Number(row["tasks"]), 0);
        for (const key of ["k0", "k1", "k2", "k3"]) {
          expect(count("concurrency_key", `key/mail/${key}`)).toBeLessThanOrEqual(2);
        }
        expect(count("tenant", "x0")).toBe(3);
        expect(count("tenant", "x1")).toBe(4);
      }
    });
  });
}
