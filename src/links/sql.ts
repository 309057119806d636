import { copyKeysOf } from "../protocol/copies.ts";
import { isAmong, limit, now, rows, sql, type Statement, table } from "../store/sql.ts";
import type { WalkSpan } from "../store/walk.ts";

const links = table("link");
const dependencies = table("task_dependency");
const tasks = table("task");
const sessions = table("session");

/** What started a task. A task that follows a failure is linked to the task that failed. */
export type LinkKind = "session" | "run" | "task" | "follow_up" | "schedule";

export type NewLink = {
  readonly fromId: string;
  readonly toId: string;
  readonly what: LinkKind;
};

/**
 * Links new tasks to what started them. Goes after their insert, in the same transaction: a task that was
 * not stored, because another has its key, gets no link.
 */
export function insertLinks(fresh: readonly NewLink[]): Statement {
  const wanted = rows(
    { from_id: "text", to_id: "text", what: "text" },
    fresh.map(({ fromId, toId, what }) => [fromId, toId, what]),
  );
  // A subquery for each row, because a join might be planned as a scan of all tasks.
  return sql`
    insert into ${links} (from_id, to_id, what, at)
    select from_id, to_id, what, ${now} from ${wanted} wanted
    where to_id = (select task_id from ${tasks} where task_id = wanted.to_id)
    on conflict do nothing`;
}

/**
 * Deletes the links to tasks that are deleted. A link outlives what started its task, because it still
 * tells, and there are never more of them than tasks.
 */
export function deleteLinksTo(gone: Statement): Statement {
  return sql`delete from ${links} as link where ${isAmong(gone, sql`to_id`)}`;
}

/** Deletes the links from sessions that are deleted, of which nothing else is kept either. */
export function deleteLinksFromSessions(deleted: Statement): Statement {
  return sql`delete from ${links} where ${isAmong(deleted, sql`from_id`)} and what = 'session'`;
}

/** The next tasks that something has started below an id, newest first. */
export function linkedTasks(fromId: string, { before, from, count }: WalkSpan): Statement {
  return sql`
    select to_id, what from ${links}
    where from_id = ${fromId} and to_id < ${before} and to_id >= ${from}
    order by to_id desc ${limit(count)}`;
}

/** The next tasks that something has started behind an id, oldest first. */
export function linkedTasksAfter(
  fromId: string,
  { after, count }: { readonly after: string; readonly count: number },
): Statement {
  return sql`
    select to_id, what from ${links} where from_id = ${fromId} and to_id > ${after}
    order by to_id ${limit(count)}`;
}

/** Ids of sessions and of schedules are the callers' own, and may equal each other. */
export type LinkSource = "session" | "task" | "schedule";

/**
 * What started a task, and the first tasks that it, a session or a schedule has started. Of a task also the
 * first that come after it, and its first copies, which have its tenant and its name.
 */
export function readLinks(id: string, source: LinkSource, count: number): Statement {
  const isFrom = {
    session: sql`what = 'session'`,
    schedule: sql`what = 'schedule'`,
    task: sql`what in ('run', 'task', 'follow_up')`,
  }[source];
  const before =
    source === "task"
      ? sql`
    select * from (
      select 'origin' as kind, from_id as id, what, link.at, null as name, null as status,
        case what when 'session' then (select tenant from ${sessions} where session_id = from_id)
          when 'schedule' then null
          else (select tenant from ${tasks} where task_id = from_id) end as tenant
      from ${links} link where to_id = ${id} order by link.at, from_id ${limit(1)}) origin
    union all`
      : sql``;
  return sql`${before}
    select * from (
      select 'started' as kind, to_id as id, what, link.at, task.name, task.status, task.tenant
      from ${links} link left join ${tasks} task on task.task_id = link.to_id
      where from_id = ${id} and ${isFrom} order by to_id ${limit(count)}) started
    ${source === "task" ? afterAndCopies(id, count) : sql``}`;
}

function afterAndCopies(taskId: string, count: number): Statement {
  const { from, below } = copyKeysOf(taskId);
  return sql`
    union all
    select * from (
      select 'dependent' as kind, dependent_id as id, 'task' as what, task.created_at as at,
        task.name, task.status, task.tenant
      from ${dependencies} wait join ${tasks} task on task.task_id = wait.dependent_id
      where dependency_id = ${taskId} order by dependent_id ${limit(count)}) dependents
    union all
    select * from (
      select 'copy' as kind, task.task_id as id, 'task' as what, task.created_at as at,
        task.name, task.status, task.tenant
      from ${tasks} original join ${tasks} task on task.tenant = original.tenant
        and task.name = original.name and task.unique_key >= ${from}
        and task.unique_key < ${below} and task.unique_key is not null
      where original.task_id = ${taskId} order by task.unique_key ${limit(count)}) copies`;
}
