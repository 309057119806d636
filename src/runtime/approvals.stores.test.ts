import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { uuidv7 } from "../base/ids.ts";
import { systemRandom } from "../base/random.ts";
import type { PendingApproval } from "../sessions/conversation/header.ts";
import { storingSessions } from "../sessions/contract/stored-sessions.ts";
import { createSqlJournal } from "../sessions/log/sql-journal.ts";
import type { OpenStore } from "../store/contract/database.ts";
import { emptyTables, storeKinds } from "../store/contract/kinds.ts";
import { migrate } from "../store/migrate.ts";
import { sql, table } from "../store/sql.ts";
import { parked } from "../tasks/sql/task-state.ts";
import { createApprovals } from "./approvals.ts";

describe.each(storeKinds)("what waits for a person on $name", (kind) => {
  let store: OpenStore;
  let list: ReturnType<typeof createApprovals>;
  let put: ReturnType<typeof storingSessions>;
  const ids = uuidv7(systemClock, systemRandom);

  beforeAll(async () => {
    store = await kind.open();
    const { database } = store;
    await migrate(database);
    list = createApprovals({ database });
    put = storingSessions(createSqlJournal({ database, ids }));
  });
  beforeEach(() => emptyTables(store, ["task", "session"]));
  afterAll(async () => {
    await store.database.close();
    await store.remove();
  });

  const call = (sinceMs: number, more: Partial<PendingApproval> = {}): PendingApproval => ({
    messageId: "m",
    toolCallId: "c",
    tool: "pay",
    sinceMs,
    ...more,
  });
  const session = (sessionId: string, calls: readonly PendingApproval[], more = {}) =>
    put({ sessionId, lastSeq: 2, approvals: { seq: 2, calls }, ...more });
  const waitingTask = (
    taskId: string,
    { sinceMs, awaits = "approve", untilMs, isRun = false, tenant = "default" }: WaitingTask,
  ) =>
    store.database.write([
      sql`insert into ${table("task")}
          (task_id, name, tenant, parked, run_at, last_update, advanced_at, awaits, flow_version)
        values (${taskId}, 'order', ${tenant},
          ${untilMs === undefined ? parked.untilSignal : parked.untilDue},
          ${untilMs ?? 0}, ${sinceMs}, ${isRun ? sinceMs : null}, ${awaits}, ${isRun ? 2 : null})`,
    ]);
  type WaitingTask = {
    sinceMs: number;
    awaits?: string;
    untilMs?: number;
    isRun?: boolean;
    tenant?: string;
  };
  const idsOf = async (options = {}) => (await list(options)).approvals.map(({ id }) => id);

  test("is listed with the nearest deadline first, then the longest waiting: runs, tasks and sessions", async () => {
    await waitingTask("run-1", { sinceMs: 200, isRun: true, untilMs: 9_000 });
    await waitingTask("task-1", { sinceMs: 100 });
    await session("s-1", [call(150, { untilMs: 7_000 }), call(160, { signal: "go" })]);
    expect(await list()).toEqual({
      next: null,
      isWhole: true,
      approvals: [
        {
          what: "session",
          id: "s-1",
          tenant: "default",
          name: "helper",
          sinceMs: 150,
          untilMs: 7_000,
          signal: null,
          calls: [call(150, { untilMs: 7_000 }), call(160, { signal: "go" })],
        },
        {
          what: "run",
          id: "run-1",
          tenant: "default",
          name: "order",
          sinceMs: 200,
          untilMs: 9_000,
          signal: "approve",
          calls: [],
        },
        {
          what: "task",
          id: "task-1",
          tenant: "default",
          name: "order",
          sinceMs: 100,
          untilMs: null,
          signal: "approve",
          calls: [],
        },
      ],
    });
  });

  test("is neither a task that waits for children or for a time, nor one that goes on", async () => {
    await waitingTask("of-children", { sinceMs: 1, awaits: "of-children/each/" });
    await store.database.write([
      sql`insert into ${table("task")} (task_id, name, parked) values ('later', 'a', ${parked.untilDue})`,
      sql`insert into ${table("task")} (task_id, name, awaits) values ('woken', 'a', 'approve')`,
      sql`insert into ${table("task")} (task_id, name, status, awaits)
        values ('ended', 'a', 'completed', 'approve')`,
    ]);
    expect(await idsOf()).toEqual([]);
  });

  test("is no more once the record that ends it is stored, or the session is archived or deleted", async () => {
    for (const id of ["s-1", "s-2", "s-3"]) await session(id, [call(1)]);
    expect(await idsOf()).toEqual(["s-1", "s-2", "s-3"]);
    await session("s-1", [], { lastSeq: 3, approvals: { seq: 3, calls: [] } });
    await session("s-2", [call(1)], { status: "archived" });
    await session("s-3", [call(1)], { status: "deleted" });
    expect(await idsOf()).toEqual([]);
    await session("s-2", [call(1)], { status: "active" });
    expect(await idsOf()).toEqual(["s-2"]);
  });

  test("is stored in columns, with the tool, by the record itself", async () => {
    await session("s-1", [call(5, { tool: "pay", untilMs: 9 })]);
    await put({ sessionId: "s-2" });
    const [waiting, plain] = await store.database.read(
      sql`select approval_since, approval_until, approval_tool, approval_seq
        from ${table("session")} order by session_id`,
    );
    const shown = Object.values({ ...waiting }).map((each) =>
      typeof each === "string" && /^\d+$/.test(each) ? Number(each) : (each as unknown),
    );
    expect(shown).toEqual([5, 9, "pay", 2]);
    expect(Object.values({ ...plain })).toEqual([null, null, null, null]);
  });

  test("is not found where a pod of an earlier release has gone on with the session", async () => {
    await session("s-1", [call(1)]);
    await store.database.write([sql`update ${table("session")} set last_seq = 3`]);
    expect(await idsOf()).toEqual([]);
  });

  test("is listed page by page, without a gap where several have waited equally long", async () => {
    for (const id of ["a", "c", "e"]) await waitingTask(id, { sinceMs: 5 });
    for (const id of ["b", "d", "f"]) await session(id, [call(5)]);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page = await list({ limit: 2, ...(cursor !== null && { cursor }) });
      expect(page.approvals.length).toBeLessThanOrEqual(2);
      seen.push(...page.approvals.map(({ id }) => id));
      cursor = page.next;
    } while (cursor !== null);
    expect(seen).toEqual(["a", "b", "c", "d", "e", "f"]);
    await expect(list({ cursor: "made up" })).rejects.toMatchObject({ code: "invalid_option" });
    await expect(list({ limit: 0 })).rejects.toMatchObject({ code: "invalid_option" });
  });

  test("has the nearest deadline on its first page, however many have waited for longer", async () => {
    for (let at = 0; at < 30; at++) await waitingTask(`old-${at + 10}`, { sinceMs: at });
    for (let at = 0; at < 5; at++) await session(`old-s${at}`, [call(40 + at)]);
    await waitingTask("soon", { sinceMs: 900, untilMs: 2_000 });
    await session("sooner", [call(950, { untilMs: 1_900 })]);
    await waitingTask("later", { sinceMs: 1, untilMs: 5_000, isRun: true });
    expect(await idsOf({ limit: 2 })).toEqual(["sooner", "soon"]);
    const seen: string[] = [];
    let cursor: string | null = null;
    do {
      const page = await list({ limit: 4, ...(cursor !== null && { cursor }) });
      seen.push(...page.approvals.map(({ id }) => id));
      cursor = page.next;
    } while (cursor !== null);
    expect(seen.slice(0, 5)).toEqual(["sooner", "soon", "later", "old-10", "old-11"]);
    expect(new Set(seen).size).toBe(38);
    expect(seen).toHaveLength(38);
    await expect(list({ cursor: "200.task-1" })).rejects.toMatchObject({ code: "invalid_option" });
  });

  test("is of one tenant where that is asked for", async () => {
    await waitingTask("task-1", { sinceMs: 1, tenant: "acme" });
    await waitingTask("task-2", { sinceMs: 1, tenant: "zeta" });
    await session("s-1", [call(2)], { tenant: "acme" });
    await session("s-2", [call(2)], { tenant: "zeta" });
    await session("s-3", [call(3, { untilMs: 9 })], { tenant: "acme" });
    await session("s-4", [call(3, { untilMs: 8 })], { tenant: "zeta" });
    expect(await idsOf({ tenant: "acme" })).toEqual(["s-3", "task-1", "s-1"]);
  });
});
