import { noEntry, type WriteEntry } from "../../audit/act.ts";
import {
  contentValue,
  forUpdateOfTask,
  join,
  limit,
  literal,
  now,
  sql,
  type Statement,
  table,
} from "../../store/sql.ts";
import { awaitsSignal, isDelayed, parkedAs, readyOrLimited } from "./task-state.ts";

const tasks = table("task");
const signals = table("task_signal");

/** More unused signals are a mistake of the sender. */
export const maxOpenSignals = 1_000;

export type NewSignal = {
  readonly taskId: string;
  /** Whether the row must be a run of a flow, or a plain task. */
  readonly to: "run" | "task";
  readonly signalId: string;
  readonly name: string;
  readonly payload: string;
};

/**
 * Sends a signal to a task or run that hasn't ended, once however often it is sent. One that is
 * parked for a signal of any name becomes ready, because a later version of its code may have renamed
 * the signal. One that is about to park doesn't park, because `wake` has changed. A known signal
 * changes nothing: repeated, it would keep a run from storing its decisions. The row is locked
 * whatever its status, so that it is woken if and only if the signal is stored.
 */
export function sendSignal(
  { taskId, to, signalId, name, payload }: NewSignal,
  entry: WriteEntry = noEntry,
): Statement[] {
  const sent = sql`exists (select 1 from ${signals} past
    where past.task_id = ${taskId} and past.signal_id = ${signalId})`;
  const unused = sql`(select count(*) from ${signals} past
    where past.task_id = ${taskId} and past.taken = 0)`;
  const isOfKind = to === "run" ? sql`flow_version is not null` : sql`flow_version is null`;
  const isNew = sql`task_id = ${taskId} and status in ('pending', 'claimed')
    and ${isOfKind} and not ${sent} and ${unused} < ${maxOpenSignals}`;
  return [
    sql`select task_id from ${tasks} task where task_id = ${taskId} ${forUpdateOfTask}`,
    ...entry({
      when: sql`from ${tasks} where ${isNew}`,
      after: JSON.stringify({ signal: name }),
    }),
    wakeSignalled(isNew),
    sql`
      insert into ${signals} (task_id, signal_id, seq, name, payload)
      select task_id, ${signalId}, (select coalesce(max(seq), 0) + 1 from ${signals} past
        where past.task_id = ${taskId}), ${name}, ${contentValue(payload)}
      from ${tasks} where ${isNew}`,
    sql`select status, flow_version, case when ${sent} then 1 else 0 end as sent
      from ${tasks} where task_id = ${taskId}`,
  ];
}

/**
 * A position in the order of what waits for signals: the nearest deadline first (`until`), then, of those
 * without one, the longest waiting (`since`).
 */
export type AwaitingCursor = {
  readonly by: "until" | "since";
  readonly atMs: number;
  readonly taskId: string;
};

/** How many tasks and runs are looked at for a page of those that wait for a signal. */
export const maxAwaitingWalked = 20_000;

const since = sql`coalesce(advanced_at, last_update)`;
const awaitedAt = { until: sql`run_at`, since } as const;

/** What waits for a signal from a position on, in the order and by the condition of its index. */
function awaitingAfter({ by, atMs, taskId }: AwaitingCursor): Statement {
  const at = awaitedAt[by];
  return sql`from ${tasks} where ${awaitsSignal[by]}
    and ${at} >= ${atMs} and (${at} > ${atMs} or task_id > ${taskId})
    order by ${at}, task_id`;
}

/** The next tasks and runs that wait for a signal, of those with a deadline or of those without. */
export function listAwaiting(
  after: AwaitingCursor,
  { tenant, count }: { tenant: string | undefined; count: number },
): Statement {
  const ofTenant = tenant === undefined ? sql`` : sql`and tenant = ${tenant}`;
  // The keys of children end with a slash, which no signal has in its name.
  return sql`
    select task_id, tenant, name, flow_version, awaits, since_at, until_at from (
      select task_id, tenant, name, flow_version, awaits, ${since} as since_at,
        case when ${isDelayed} then run_at end as until_at
      ${awaitingAfter(after)} ${limit(maxAwaitingWalked)}) waiting
    where awaits not like '%/' ${ofTenant}
    order by ${after.by === "until" ? sql`until_at` : sql`since_at`}, task_id ${limit(count)}`;
}

/** Whether there is more to look at than `listAwaiting` does. */
export function hasMoreAwaiting(after: AwaitingCursor): Statement {
  return sql`
    select case when exists (
      select 1 ${awaitingAfter(after)} limit 1 offset ${literal(maxAwaitingWalked)})
      then 1 else 0 end as more`;
}

/** Stores one signal for each `task` of a query, unless it has it or too many unused ones. */
export function addSignals(
  from: Statement,
  { signalId, name, payload }: Pick<NewSignal, "signalId" | "name" | "payload">,
): Statement {
  const ofTask = sql`from ${signals} past where past.task_id = task.task_id`;
  return sql`
    insert into ${signals} (task_id, signal_id, seq, name, payload)
    select task.task_id, ${signalId}, (select coalesce(max(seq), 0) + 1 ${ofTask}), ${name},
      ${contentValue(payload)}
    from ${from} and not exists (select 1 ${ofTask} and past.signal_id = ${signalId})
      and (select count(*) ${ofTask} and past.taken = 0) < ${maxOpenSignals}`;
}

/** Wakes the tasks and runs that get a signal: all that match the condition. */
export function wakeSignalled(which: Statement): Statement {
  const isMeant = sql`status = 'pending' and parked in (${parkedAs.untilDue}, ${parkedAs.untilSignal}) and awaits is not null`;
  return sql`
      update ${tasks}
      set wake = wake + 1,
        last_update = case when status = 'pending' then ${now} else last_update end,
        run_at = case when ${isMeant} then ${now} else run_at end,
        parked = case when ${isMeant} then ${readyOrLimited} else parked end
      where ${which}`;
}

/** The first unused signal of a task or run, under any of these names. */
export function firstSignal(taskId: string, names: readonly string[]): Statement {
  const listed = join(
    names.map((name) => sql`${name}`),
    ", ",
  );
  return sql`
    select signal_id, payload from ${signals}
    where task_id = ${taskId} and name in (${listed}) and taken = 0 order by seq limit 1`;
}
