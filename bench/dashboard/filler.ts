import { silentLogger } from "../../src/base/log.ts";
import { startPod } from "../../src/index.ts";
import { encodeCounts } from "../../src/series/counts.ts";
import { logOf } from "../../src/sessions/log/placement.ts";
import type { Database } from "../../src/store/database.ts";
import { openStore } from "../../src/store/open.ts";
import { rows, sql, type Statement, table } from "../../src/store/sql.ts";
import { playRole } from "../roles.ts";
import { benchFleet, flowNames } from "./fleet.ts";

/**
 * A process that fills a store. A pod makes one of each kind as it is made, and statements that insert by
 * the thousand make the rest of it.
 */
export type FillerParams = FilledSizes & { readonly store: string };

export type FilledSizes = {
  readonly tasks: number;
  readonly runs: number;
  readonly sessions: number;
  readonly entries: number;
  /** The events of the task and of the run that have many. */
  readonly events: number;
};

/** What pages of one thing are about. */
export type Filled = {
  readonly taskId: string;
  readonly runId: string;
  readonly sessionId: string;
  readonly longTaskId: string;
  readonly longRunId: string;
};

type Templates = Omit<Filled, "longTaskId" | "longRunId"> & {
  readonly failedId: string;
  readonly endedRunId: string;
};

const storedTogether = 5_000;
const names = 50;
const tenants = 20;
const spreadMs = 86_400_000;
const minuteMs = 60_000;
const minutesKept = 1_440;
const subjects = 60;
const madeWithinMs = 30_000;

const task = table("task");
const event = table("task_event");

playRole(async ({ store: url, ...sizes }: FillerParams): Promise<Filled> => {
  const templates = await makeTemplates(url);
  const store = await openStore(url);
  // Older than what the pod has made, so that nothing of it is in the future.
  const untilMs = Date.now() - 2 * minuteMs;
  await fillTasks(store, sizes.tasks, untilMs);
  await fillRuns(store, sizes.runs, untilMs, templates);
  await fillSessions(store, sizes.sessions, untilMs, templates);
  await fillAudit(store, sizes.entries, untilMs);
  await fillSeries(store, untilMs);
  const longTaskId = await fillEvents(store, templates.failedId, sizes.events);
  const longRunId = await fillEvents(store, templates.endedRunId, sizes.events);
  // What a server that has had time would have done by itself. SQLite is never told to.
  if (url.startsWith("postgres")) await store.write([sql`analyze`]);
  await store.close();
  const { taskId, runId, sessionId } = templates;
  return { taskId, runId, sessionId, longTaskId, longRunId };
});

async function makeTemplates(store: string): Promise<Templates> {
  await using pod = await startPod({ store, ...benchFleet(), log: silentLogger });
  const ended = async (name: string, input: unknown, status: string): Promise<string> => {
    const { taskId } = await pod.enqueue(name, input as never);
    await until(async () => (await pod.tasks.get(taskId))?.status === status);
    return taskId;
  };
  const waiting = async (): Promise<string> => {
    const { runId } = await pod.runs.start(flowNames[0], { item: "a book" } as never);
    await until(async () => (await pod.runs.get(runId))?.doing?.type === "waiting_for_signal");
    return runId;
  };
  const taskId = await ended("mail", { to: "ada", pages: [1, 2, 3] }, "completed");
  await ended("summary", { page: "/boats" }, "completed");
  const failedId = await ended("broken", { to: "bea" }, "failed");
  const runId = await waiting();
  const endedRunId = await waiting();
  await pod.runs.signal(endedRunId, "approval", { by: "ada" });
  await until(async () => (await pod.runs.get(endedRunId))?.status === "completed");
  const chat = await pod.sessions.create("echo", { user: "ada", metadata: { plan: "pro" } });
  for (const asked of ["What is a flotilla?", "And a sail?"]) await chat.ask(asked);
  return { taskId, failedId, runId, endedRunId, sessionId: chat.sessionId };
}

async function until(isSo: () => Promise<boolean>): Promise<void> {
  const deadlineMs = performance.now() + madeWithinMs;
  while (!(await isSo())) {
    if (performance.now() > deadlineMs) throw new Error("a template of the store wasn't made");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

/** Postgres takes a bare value for text where nothing says otherwise. */
function bigint(value: number): Statement {
  return sql`cast(${value} as bigint)`;
}

type Batch = {
  /** The numbers of its rows, as a table with one column, `n`. */
  readonly numbers: Statement;
  /** An id of its own for each, which sorts by age as ids of tasks do. */
  readonly id: Statement;
  /** When all of it was. */
  readonly at: Statement;
};

/** Rows are inserted some thousand at a time, the oldest first, over the last day. */
async function inBatches(
  store: Database,
  count: number,
  { untilMs, kind }: { readonly untilMs: number; readonly kind: number },
  insert: (batch: Batch) => Statement,
): Promise<void> {
  for (let from = 0; from < count; from += storedTogether) {
    const last = Math.min(count, from + storedTogether) - 1;
    const atMs = Math.round(untilMs - spreadMs + (from / count) * spreadMs);
    const hex = atMs.toString(16).padStart(12, "0");
    const prefix = `${hex.slice(0, 8)}-${hex.slice(8)}-7${kind}00-8000-`;
    await store.write([
      insert({
        numbers: sql`with recursive numbers(n) as (
          select cast(${from} as bigint) union all select n + 1 from numbers where n < ${last})`,
        id: sql`${prefix} || substr(cast(1000000000000 + n as text), 2)`,
        at: bigint(atMs),
      }),
    ]);
  }
}

/** Of a hundred tasks one has failed, one was cancelled, one is to run tomorrow, and one waits in vain. */
async function fillTasks(store: Database, count: number, untilMs: number): Promise<void> {
  const payload = JSON.stringify({ to: "ada", text: "x".repeat(80) });
  const error = JSON.stringify({ code: "handler_failed", message: "the recipient is unknown" });
  await inBatches(
    store,
    count,
    { untilMs, kind: 0 },
    ({ numbers, id, at }) => sql`
    insert into ${task} (task_id, tenant, name, status, payload, parked, run_at, created_at, last_update,
      started_at, claim_token, retry_count, result, error)
    ${numbers}
    select ${id}, 'tenant-' || cast(n % ${tenants} as text),
      case when n % 100 = 3 then 'backlog-' else 'task-' end || cast(n % ${names} as text),
      case n % 100 when 0 then 'failed' when 1 then 'cancelled' when 2 then 'pending' when 3 then 'pending'
        else 'completed' end,
      ${payload}, case when n % 100 = 2 then 1 else 0 end,
      case when n % 100 = 2 then ${bigint(untilMs + spreadMs)} else ${at} end, ${at}, ${at}, ${at}, 1,
      case when n % 100 = 0 then 1 else 0 end, case when n % 100 > 3 then '{"sent":true}' end,
      case when n % 100 = 0 then ${error} end
    from numbers`,
  );
}

/** Of twenty runs one waits for a signal, and one has failed. */
async function fillRuns(
  store: Database,
  count: number,
  untilMs: number,
  { runId, endedRunId }: Templates,
): Promise<void> {
  const error = JSON.stringify({ code: "handler_failed", message: "the shelf is empty" });
  const flow = flowNames.map((name, at) => sql`when ${at} then ${name}`);
  const flows = flow.reduce((before, each) => sql`${before} ${each}`);
  await inBatches(
    store,
    count,
    { untilMs, kind: 1 },
    ({ numbers, id, at }) => sql`
    insert into ${task} (task_id, tenant, name, status, payload, state, parked, run_at, created_at,
      last_update, started_at, claim_token, result, error, flow_version, cursor, intent, waiting, awaits,
      run_seq, advanced_at)
    ${numbers}
    select ${id}, 'tenant-' || cast(n % ${tenants} as text), case n % ${flowNames.length} ${flows} end,
      case when n % 20 = 1 then 'failed' else made.status end, made.payload, made.state, made.parked,
      ${at}, ${at}, ${at}, ${at}, 1, made.result, case when n % 20 = 1 then ${error} end,
      made.flow_version, made.cursor, made.intent, made.waiting, made.awaits, made.run_seq, ${at}
    from numbers join ${task} made
      on made.task_id = case when n % 20 = 0 then ${runId} else ${endedRunId} end`,
  );
}

/** Copies of a conversation, each with an owner and a time of its own. */
async function fillSessions(
  store: Database,
  count: number,
  untilMs: number,
  { sessionId: made }: Templates,
): Promise<void> {
  const session = table("session");
  const [found] = await store.read(
    sql`select header, metadata, last_seq, agent from ${session} where session_id = ${made}`,
  );
  const heads = await store.read(sql`select log_id from ${table("session_log")}`);
  const header = JSON.parse(found!["header"] as string) as Record<string, unknown>;
  const together = 500;
  for (let from = 0; from < count; from += together) {
    const ids = Array.from(
      { length: Math.min(together, count - from) },
      (_, at) => `session-${String(from + at).padStart(9, "0")}`,
    );
    const copies = ids.map((sessionId, at) => {
      const atMs = Math.round(untilMs - spreadMs + ((from + at) / count) * spreadMs);
      const users = [`user-${(from + at) % 1_000}`];
      const own = { ...header, sessionId, users, createdAtMs: atMs, activeAtMs: atMs };
      return [sessionId, logOf(sessionId, heads.length), JSON.stringify(own), users[0]!, atMs];
    });
    const copied = rows(
      { session_id: "text", log_id: "integer", header: "text", user_id: "text", at: "integer" },
      copies,
    );
    const entry = table("message");
    const turn = table("turn");
    await store.write([
      sql`insert into ${session} (session_id, log_id, last_offset, agent, last_seq, header, metadata,
          created_at, active_at)
        select session_id, log_id, 0, ${found!["agent"]}, ${bigint(Number(found!["last_seq"]))}, header,
          ${found!["metadata"]}, at, at from ${copied} copied`,
      sql`insert into ${table("session_user")} (session_id, user_id)
        select session_id, user_id from ${copied} copied`,
      sql`insert into ${entry} (session_id, seq, kind, role, author, message_id, body, at)
        select copied.session_id, entry.seq, entry.kind, entry.role, entry.author,
          entry.message_id || copied.session_id, entry.body, copied.at
        from ${copied} copied cross join ${entry} entry where entry.session_id = ${made}`,
      sql`insert into ${turn} (session_id, epoch, attempt, agent, began_at, ended_at, outcome)
        select copied.session_id, turn.epoch, turn.attempt, turn.agent, copied.at, copied.at, turn.outcome
        from ${copied} copied cross join ${turn} turn where turn.session_id = ${made}`,
    ]);
  }
}

async function fillAudit(store: Database, count: number, untilMs: number): Promise<void> {
  await inBatches(
    store,
    count,
    { untilMs, kind: 2 },
    ({ numbers, id, at }) => sql`
    insert into ${table("audit")} (id, at, actor, key_name, role, address, action, subject, count, outcome)
    ${numbers}
    select ${id}, ${at}, case when n % 10 < 9 then 'key/ops' else 'user/zoe' end, 'ops', 'operator',
      '10.0.0.1', case when n % 2 = 0 then 'tasks.cancel' else 'tasks.retry' end,
      'task-' || cast(n as text), 1, 'done'
    from numbers`,
  );
}

/** A day of minutes of every subject that pods count. */
async function fillSeries(store: Database, untilMs: number): Promise<void> {
  const lastMs = untilMs - (untilMs % minuteMs);
  const durations = { buckets: [0, 3, 12, 40, 30, 10, 4, 1], sumMs: 1_500 };
  const counts = encodeCounts({
    counts: { completed: 90, failed: 3, retry: 7 },
    gauges: {},
    wait: durations,
    run: durations,
  });
  for (let at = 0; at < subjects; at++) {
    const subject = at === 0 ? "task" : `task:task-${at}`;
    await store.write([
      sql`insert into ${table("series")} (span, at, subject, pod, counts)
        with recursive numbers(n) as (
          select cast(0 as bigint) union all select n + 1 from numbers where n < ${minutesKept - 1})
        select ${bigint(minuteMs)}, ${lastMs} - n * ${minuteMs}, ${subject}, '', ${counts} from numbers`,
    ]);
  }
}

/** Gives a task or run the events that it has over and over. Returns its id. */
async function fillEvents(store: Database, taskId: string, count: number): Promise<string> {
  const [found] = await store.read(
    sql`select count(*) as events, max(seq) as last from ${event} where task_id = ${taskId}`,
  );
  const [own, last] = [Number(found!["events"]), Number(found!["last"])];
  const times = Math.ceil(count / own) - 1;
  for (let from = 1; from <= times; from += storedTogether / 10) {
    const to = Math.min(times, from + storedTogether / 10 - 1);
    await store.write([
      sql`insert into ${event} (task_id, seq, at, type, attempt, pod_id, detail)
        with recursive numbers(n) as (
          select cast(${from} as bigint) union all select n + 1 from numbers where n < ${to})
        select made.task_id, made.seq + n * ${last}, made.at + n, made.type, made.attempt, made.pod_id,
          made.detail
        from numbers cross join ${event} made
        where made.task_id = ${taskId} and made.seq <= ${last}`,
    ]);
  }
  return taskId;
}
