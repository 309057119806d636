import { noEntry, type WriteEntry } from "../audit/act.ts";
import { countEntry, endEntry } from "../audit/sql.ts";
import { idBoundAt } from "../base/ids.ts";
import {
  forUpdate,
  forUpdateOfTask,
  isAmong,
  join,
  limit,
  now,
  rowAddress,
  rows,
  sql,
  type Statement,
  table,
} from "../store/sql.ts";
import {
  hasNoOpenDependents,
  notifyingParents,
  wakeDependents,
  wakeDependentsOfChildren,
  wakeIfDependenciesEnded,
} from "../tasks/sql/dependencies.ts";
import {
  anyVersion,
  cancelChildren,
  isPendingTask,
  isUnreadable,
  requestCancel,
  startedOver,
} from "../tasks/sql/inspect.ts";
import { deleteBelongings, isSettled } from "../tasks/sql/recover.ts";
import { planFilter } from "../tasks/inspect/list.ts";
import { isAmongIds, isRunNamed } from "../tasks/sql/list.ts";
import { addSignals, wakeSignalled } from "../tasks/sql/signals.ts";
import { forgetSteps } from "../tasks/sql/steps.ts";
import { nextSeq, parkedAs, readyOrLimited } from "../tasks/sql/task-state.ts";
import {
  type BulkAction,
  type CheckedBulk,
  encodeFilter,
  type SeenTask,
  statusesOf,
  type StoredBulk,
} from "./bulk.ts";

const bulks = table("bulk");
const tasks = table("task");
const events = table("task_event");

/** The leader takes turns with them, so that with more of them each would be slow. */
export const maxOpenBulks = 20;

const isOpen = sql`state = 'running'`;

export type NewBulk = CheckedBulk & {
  readonly createdBy: string | null;
  readonly matched: number;
  readonly isExact: boolean;
};

/** Stores a bulk, unless too many are open. Its id makes a repeated send harmless. */
export function insertBulk(
  bulkId: string,
  bulk: NewBulk,
  entry: WriteEntry = noEntry,
): Statement[] {
  const { action, filter, options, payload, createdBy, matched, isExact, reason } = bulk;
  const columns = {
    bulk_id: "text",
    action: "text",
    filter: "text",
    options: "text",
    payload: "content",
    matched: "integer",
    is_exact: "integer",
    created_by: "text",
    reason: "text",
  } as const;
  const fresh = rows(columns, [
    [
      bulkId,
      action,
      encodeFilter(filter),
      JSON.stringify(options),
      payload,
      matched,
      isExact ? 1 : 0,
      createdBy,
      reason,
    ],
  ]);
  return [
    sql`
      insert into ${bulks} (bulk_id, action, filter, options, payload, matched, is_exact, created_by,
        reason, until_id)
      select bulk_id, action, filter, options, payload, matched, is_exact, created_by, reason,
        coalesce((select max(task_id) from ${tasks}), '')
      from ${fresh} fresh
      where (select count(*) from ${bulks} where ${isOpen}) < ${maxOpenBulks}
      on conflict (bulk_id) do nothing`,
    ...entry({
      when: sql`from ${bulks} where bulk_id = ${bulkId}`,
      after: JSON.stringify({ bulkId, ...options }),
      count: 0,
      outcome: "begun",
    }),
    getBulk(bulkId),
  ];
}

export function getBulk(bulkId: string): Statement {
  return sql`select * from ${bulks} where bulk_id = ${bulkId}`;
}

/** Bulks, newest first: those after the cursor, or all. A signal may have a large payload, which no list shows. */
export function listBulks(count: number, cursor?: string): Statement {
  const behind = cursor === undefined ? sql`` : sql`where bulk_id < ${cursor}`;
  return sql`
    select bulk_id, action, filter, options, state, revision, cursor_id, until_id, matched, is_exact, done,
      skipped, refused, created_by, reason, created_at, last_update
    from ${bulks} ${behind} order by bulk_id desc ${limit(count)}`;
}

export function openBulks(): Statement {
  return sql`select * from ${bulks} where ${isOpen} order by created_at, bulk_id ${limit(maxOpenBulks)}`;
}

/**
 * Stops a bulk. A batch that is under way is either committed before this, or not at all, because it
 * requires the revision that it has read.
 */
export function stopBulk(bulkId: string, entry: WriteEntry = noEntry): Statement[] {
  return [
    sql`select bulk_id from ${bulks} where bulk_id = ${bulkId} ${forUpdate}`,
    ...entry({
      when: sql`from ${bulks} where bulk_id = ${bulkId} and ${isOpen}`,
      before: '{"state":"running"}',
      after: '{"state":"stopped"}',
    }),
    sql`
      update ${bulks} set state = 'stopped', revision = revision + 1, last_update = ${now}
      where bulk_id = ${bulkId} and ${isOpen}`,
    endBulkEntry(bulkId),
    getBulk(bulkId),
  ];
}

/** Deletes bulks that ended long ago. */
export function pruneBulks(olderThanMs: number): Statement {
  return sql`delete from ${bulks} where not (${isOpen}) and last_update < ${now} - ${olderThanMs}`;
}

/** What a walk looks for: the tasks that an act on a filter is for. */
export type BulkWalk = Pick<CheckedBulk, "action" | "filter"> & {
  readonly as: number | null;
  /** Only ids after this one. */
  readonly after: string;
  /** Only up to this id, and only tasks that were there at this time. Default: all. */
  readonly until?: { readonly taskId: string; readonly atMs: number };
};

/**
 * Walks over `pageRows` tasks in the order of their ids. Returns the first of them that match, at most
 * `count`, and last how many it has walked over, with the id of the last one. One statement costs the same
 * for a table of any length. Failed tasks, and the runs of one flow, are walked along an index of theirs.
 */
export function walkMatching(walk: BulkWalk, pageRows: number, count: number): Statement {
  const { filter, as, after } = walk;
  const { name, group } = filter;
  const error = group === undefined ? sql`` : sql`, error`;
  const among = as !== null && name !== undefined ? isRunNamed(name) : planFilter(filter).among;
  const { first, last } = idsOf(walk);
  // One bound at either end, because an index is read between two, and what is behind them is passed over.
  const walked = [
    after === "" && first !== undefined ? sql`task_id >= ${first}` : sql`task_id > ${after}`,
    ...(last === undefined ? [] : [sql`task_id <= ${last}`]),
    ...(among === undefined ? [] : [among]),
  ];
  return sql`
    with page as materialized (
      select task_id, name, status, claim_token${error},
        case when ${join(matches(walk), " and ")} then 1 else 0 end as fits
      from ${tasks} where ${join(walked, " and ")}
      order by task_id ${limit(pageRows)})
    select * from (
      select task_id, name, status, claim_token${error}, 0 as walked from page
      where fits = 1 order by task_id ${limit(count)}) matching
    union all
    select max(task_id), null, null, null${group === undefined ? sql`` : sql`, null`}, count(*) from page`;
}

/** Of these tasks, the first that match, at most `count`. */
export function checkMatching(
  walk: BulkWalk,
  taskIds: readonly string[],
  count: number,
): Statement {
  const error = walk.filter.group === undefined ? sql`` : sql`, error`;
  return sql`
    select task_id, name, status, claim_token${error}, 0 as walked from ${tasks}
    where ${isAmongIds(taskIds)} and ${join(matches(walk), " and ")}
    order by task_id ${limit(count)}`;
}

/** The conditions of a row that a walk looks for. */
function matches(walk: BulkWalk): Statement[] {
  const { action, filter, as, until } = walk;
  const { from, to, sinceMs, untilMs } = filter;
  return [
    hasStatus(action),
    ...(until === undefined
      ? []
      : [sql`task_id <= ${until.taskId} and created_at <= ${until.atMs}`]),
    ...applies({ action, as }),
    ...planFilter(filter).fits,
    ...(from === undefined ? [] : [sql`task_id >= ${from}`]),
    ...(to === undefined ? [] : [sql`task_id <= ${to}`]),
    ...(sinceMs === undefined ? [] : [sql`task_id >= ${idBoundAt(sinceMs)}`]),
    ...(untilMs === undefined ? [] : [sql`task_id < ${idBoundAt(untilMs + 1)}`]),
  ];
}

/** Where the ids of a walk begin and end at the most. */
function idsOf({ filter: { from, to, sinceMs, untilMs }, until }: BulkWalk): {
  readonly first: string | undefined;
  readonly last: string | undefined;
} {
  const firsts = [from, sinceMs === undefined ? undefined : idBoundAt(sinceMs)];
  const lasts = [until?.taskId, to, untilMs === undefined ? undefined : idBoundAt(untilMs + 1)];
  const isGiven = (id: string | undefined) => id !== undefined;
  return {
    first: firsts.filter(isGiven).toSorted().at(-1),
    last: lasts.filter(isGiven).toSorted()[0],
  };
}

function hasStatus(action: BulkAction): Statement {
  const listed = statusesOf[action].map((status) => sql`${status}`);
  return sql`status in (${join(listed, ", ")})`;
}

/** The conditions of an action besides the status, on a row of `task` without a prefix. */
function applies({ action, as }: Pick<StoredBulk, "action" | "as">): Statement[] {
  switch (action) {
    case "cancel":
      return [sql`(cancel_requested = 0 or ${isUnreadable})`];
    case "resume":
      return as === null
        ? [sql`parked = ${parkedAs.setAside}`]
        : [
            sql`flow_version is not null and (parked = ${parkedAs.setAside} or flow_version > ${as})`,
          ];
    case "retry":
    case "delete":
    case "signal":
      return [];
  }
}

/** A write of the leader: it counts only if the row is unchanged since it was read. */
export type BatchWrite = {
  readonly bulk: StoredBulk;
  readonly seen: readonly SeenTask[];
  /** The last id that was walked over, and whether the walk is over. */
  readonly lastTaskId: string;
  readonly isLast: boolean;
};

/**
 * Does one batch: moves the bulk on, acts on those tasks that are as they were seen, and counts what became
 * of each. A second leader, and a second send, change nothing.
 */
export function writeBatch(write: BatchWrite): Statement[] {
  const { bulk, seen, lastTaskId, isLast } = write;
  const { bulkId, revision } = bulk;
  const batch = batchOf(write);
  const acting = seen.length === 0 ? [] : actsOf(write, batch);
  const begin = sql`
    update ${bulks}
    set revision = revision + 1, cursor_id = ${lastTaskId},
      batch = (select count(*) from ${batch.wanted} wanted join ${tasks} task
        on task.task_id = wanted.task_id where ${batch.isAsSeen(sql`task`)}),
      last_update = ${now}
    where bulk_id = ${bulkId} and revision = ${revision} and ${isOpen}`;
  const end = sql`
    update ${bulks}
    set done = done + batch - ${batch.left}, refused = refused + ${batch.left},
      skipped = skipped + cast(${seen.length} as integer) - batch, batch = null
      ${isLast ? sql`, state = 'done'` : sql``}
    where ${batch.isOurs}`;
  const counted = sql`(select done from ${bulks} where bulk_id = ${bulkId})`;
  return [
    ...(bulk.action === "retry"
      ? notifyingParents(batch.taskIds, [batch.lock, begin, ...acting])
      : [batch.lock, begin, ...acting]),
    ...(bulk.action === "retry" ? [wakeIfDependenciesEnded(batch.taskIds)] : []),
    end,
    countEntry(bulkId, 0, counted),
    ...(isLast ? [endBulkEntry(bulkId)] : []),
    getBulk(bulkId),
  ];
}

type Batch = ReturnType<typeof batchOf>;

function batchOf({ bulk, seen }: BatchWrite) {
  const { bulkId, action, filter } = bulk;
  // What a task was seen in has its status, and the group of its error with it. Its id never changes.
  const { status: _, group: __, ids: ___, ...rest } = filter;
  const sorted = seen.toSorted((one, other) => (one.taskId < other.taskId ? -1 : 1));
  // No column but the id has the name of one of `task`, so that these need no prefix in a join.
  const wanted = rows(
    { task_id: "text", seen_status: "text", token: "integer" },
    sorted.map(({ taskId, status, token }) => [taskId, status, token]),
  );
  const taskIds = sorted.map(({ taskId }) => taskId);
  // Set if this transaction has moved the bulk on, and null in every row that is committed. So only the
  // writer that has just moved it acts, and only once.
  const isOurs = sql`bulk_id = ${bulkId} and batch is not null`;
  const isSignalled = (task: Statement) => sql`exists (select 1 from ${table("task_signal")} sent
    where sent.task_id = ${task}.task_id and sent.signal_id = ${bulkId})`;
  const isAsSeen = (task: Statement) =>
    join(
      [
        sql`${task}.status = wanted.seen_status`,
        sql`${task}.claim_token = wanted.token`,
        ...applies(bulk),
        ...planFilter(rest).fits,
      ],
      " and ",
    );
  return {
    wanted,
    taskIds,
    isOurs,
    isAsSeen,
    isSignalled,
    isMeant: (task: Statement) =>
      sql`${isAsSeen(task)} and exists (select 1 from ${bulks} where ${isOurs})`,
    /** Other transactions wait until this one has judged and changed these. */
    lock: sql`select task_id from ${tasks} task
      where ${isAmong(sql`select task_id from ${wanted} wanted`, sql`task_id`)}
      order by task_id ${forUpdateOfTask}`,
    /** How many are as they were seen still, and would be changed if the act were possible. */
    left: sql`(select count(*) from ${wanted} wanted join ${tasks} task
      on task.task_id = wanted.task_id where ${isAsSeen(sql`task`)}
      ${action === "signal" ? sql`and not ${isSignalled(sql`task`)}` : sql``})`,
  };
}

function actsOf(write: BatchWrite, batch: Batch): Statement[] {
  switch (write.bulk.action) {
    case "cancel":
      return cancelActs(write, batch);
    case "retry":
      return retryActs(write, batch);
    case "delete":
      return deleteActs(batch);
    case "signal":
      return signalActs(write, batch);
    case "resume":
      return resumeActs(write, batch);
  }
}

/** An event for each task that is meant, with the id of the bulk, which is also that of its entry. */
function noteEach(
  batch: Batch,
  { type, detail, when }: { type: string; detail: Statement; when?: Statement },
): Statement {
  return sql`
    insert into ${events} (task_id, seq, type, detail)
    select task.task_id, ${nextSeq(sql`task.task_id`)}, ${type}, ${detail}
    from ${batch.wanted} wanted join ${tasks} task on task.task_id = wanted.task_id
    where ${batch.isMeant(sql`task`)} ${when === undefined ? sql`` : sql`and ${when}`}`;
}

/** As `cancelTask` does it: what ends at once takes its open children with it. */
function cancelActs({ bulk: { bulkId } }: BatchWrite, batch: Batch): Statement[] {
  const detail = sql`${JSON.stringify({ request: bulkId })}`;
  const hasJustEnded = (task: Statement) => sql`${batch.wanted} wanted
    join ${tasks} ${task} on ${task}.task_id = wanted.task_id
    where ${task}.status = 'cancelled' and ${task}.claim_token = wanted.token + 1
      and exists (select 1 from ${bulks} where ${batch.isOurs})`;
  return [
    noteEach(batch, { type: "cancel_requested", detail, when: sql`cancel_requested = 0` }),
    noteEach(batch, { type: "given_up", detail, when: isUnreadable }),
    sql`
      update ${tasks} set ${requestCancel(sql`(${isPendingTask} or ${isUnreadable})`)}
      from ${batch.wanted} wanted
      where ${tasks}.task_id = wanted.task_id and ${batch.isMeant(sql`${tasks}`)}`,
    ...cancelChildren(batch.taskIds, hasJustEnded),
    ...wakeDependentsOfChildren(batch.taskIds),
    ...wakeDependents(batch.taskIds),
  ];
}

/** As `retryTask` does it. */
function retryActs({ bulk: { bulkId, fromStart } }: BatchWrite, batch: Batch): Statement[] {
  const starting = sql`select task.task_id from ${batch.wanted} wanted join ${tasks} task
    on task.task_id = wanted.task_id where ${batch.isMeant(sql`task`)}`;
  const mark = `{"request":"${bulkId}","token":`;
  return [
    noteEach(batch, {
      type: "retried",
      detail: sql`${mark} || cast(task.claim_token + 1 as text) || '}'`,
    }),
    forgetSteps(starting, fromStart ? "all" : "failed"),
    sql`
      update ${tasks} set ${startedOver} ${fromStart ? anyVersion : sql``}
      from ${batch.wanted} wanted
      where ${tasks}.task_id = wanted.task_id and ${batch.isMeant(sql`${tasks}`)}`,
  ];
}

/** Deletes those without open dependents that ended a while ago, and all rows that belong to them. */
function deleteActs(batch: Batch): Statement[] {
  const gone = sql`select task_id from ${batch.wanted} wanted
    where not exists (select 1 from ${tasks} task where task.task_id = wanted.task_id)`;
  return [
    sql`delete from ${tasks} where ${isAmong(sql`
      select ${rowAddress("task", tasks)} from ${batch.wanted} wanted
      join ${tasks} on ${tasks}.task_id = wanted.task_id
      where ${batch.isMeant(sql`${tasks}`)} and ${isSettled} and ${hasNoOpenDependents}`)}`,
    ...deleteBelongings(gone),
  ];
}

/** As `sendSignal` does it, with the id of the bulk as that of the signal. */
function signalActs({ bulk: { bulkId, signal, payload } }: BatchWrite, batch: Batch): Statement[] {
  const sent = sql`select task.task_id from ${batch.wanted} wanted join ${tasks} task
    on task.task_id = wanted.task_id
    where ${batch.isSignalled(sql`task`)} and exists (select 1 from ${bulks} where ${batch.isOurs})`;
  return [
    addSignals(
      sql`${batch.wanted} wanted join ${tasks} task on task.task_id = wanted.task_id
        where ${batch.isMeant(sql`task`)}`,
      { signalId: bulkId, name: signal!, payload: payload! },
    ),
    wakeSignalled(sql`${isAmong(sent, sql`task_id`)}`),
  ];
}

/** As `resumeSetAside` does it for runs, and `resumeTask` for tasks. */
function resumeActs({ bulk: { bulkId, as } }: BatchWrite, batch: Batch): Statement[] {
  const version = as === null ? sql`task.flow_version` : sql`cast(${as} as integer)`;
  return [
    noteEach(batch, {
      type: "resume",
      detail: sql`case when task.flow_version is null then ${JSON.stringify({ request: bulkId })}
        else '{"version":' || cast(${version} as text) || ${`,"request":"${bulkId}"}`} end`,
    }),
    sql`
      update ${tasks}
      set parked = case when parked = ${parkedAs.setAside} then ${readyOrLimited} else parked end,
        set_aside = null, set_aside_version = null, last_update = ${now}, wake = wake + 1
        ${as === null ? sql`` : sql`, flow_version = ${as}`}
      from ${batch.wanted} wanted
      where ${tasks}.task_id = wanted.task_id and ${batch.isMeant(sql`${tasks}`)}`,
  ];
}

/** Of these tasks, those that are there and of the bulk's tenant, and whether it has acted on each. */
export function readOutcomes(
  { bulkId, action, filter: { tenant } }: Pick<StoredBulk, "bulkId" | "action" | "filter">,
  taskIds: readonly string[],
): Statement {
  const isActedOn =
    action === "signal"
      ? sql`exists (select 1 from ${table("task_signal")} sent
          where sent.task_id = task.task_id and sent.signal_id = ${bulkId})`
      : sql`exists (select 1 from ${events} event where event.task_id = task.task_id
          and event.type in ('cancel_requested', 'given_up', 'retried', 'resume')
          and event.detail like ${`%"request":"${bulkId}"%`})`;
  return sql`
    select task_id, status, case when ${isActedOn} then 1 else 0 end as acted_on from ${tasks} task
    where ${isAmongIds(taskIds)} ${tenant === undefined ? sql`` : sql`and tenant = ${tenant}`}`;
}

/** Ends the entry of a bulk that has ended. */
function endBulkEntry(bulkId: string): Statement {
  const hasEnded = sql`exists (select 1 from ${bulks} where bulk_id = ${bulkId} and not (${isOpen}))`;
  return endEntry(bulkId, hasEnded);
}
