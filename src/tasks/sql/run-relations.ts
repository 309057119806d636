import { forUpdateOfTask, isAmong, rows, sql, type Statement, table } from "../../store/sql.ts";
import { startedOver } from "./inspect.ts";
import type { NewTask } from "./enqueue.ts";
import { nextSeq } from "./task-state.ts";
import { wakeChildren } from "./dependencies.ts";

/** What a write of a run does to others: its children, and what was said to it. */
const tasks = table("task");
const events = table("task_event");
const signals = table("task_signal");
const dependencies = table("task_dependency");

/** A run that another one starts, and which of those it is. */
export type Child = NewTask & { readonly parentId: string; readonly place: number };

export function takeSignals(
  takes: readonly (readonly [string, string])[],
  fence: (task: Statement) => Statement,
): Statement {
  const taken = rows({ task_id: "text", signal_id: "text" }, takes);
  return sql`
    update ${signals} set taken = 1
    from ${taken} used
    where ${signals}.task_id = used.task_id and ${signals}.signal_id = used.signal_id
      and used.task_id in (select task.task_id from ${fence(sql`task`)})`;
}

/**
 * A run that was started over starts its children again: those that have completed are there already, by
 * their keys, and are kept. The others are started over themselves.
 */
export function startOver(
  children: readonly Child[],
  fence: (task: Statement) => Statement,
): Statement[] {
  const wanted = rows(
    { parent_id: "text", name: "text", tenant: "text", unique_key: "text" },
    children.map(({ parentId, name, tenant, key }) => [parentId, name, tenant, key]),
  );
  const ended = sql`
    select child.task_id from ${wanted} wanted
    join ${tasks} child on child.tenant = wanted.tenant and child.name = wanted.name
      and child.unique_key = wanted.unique_key
    where child.parent_id = wanted.parent_id and child.status in ('failed', 'cancelled')
      and wanted.parent_id in (select task.task_id from ${fence(sql`task`)})`;
  const among = isAmong(ended, sql`task_id`);
  return [
    sql`
      insert into ${events} (task_id, seq, type)
      select task_id, ${nextSeq(sql`task.task_id`)}, 'retried' from ${tasks} task
      where ${among} ${forUpdateOfTask}`,
    sql`update ${tasks} set ${startedOver} where ${among}`,
  ];
}

/**
 * A run that was started over may want fewer children than before, or others. What it doesn't want any more
 * it doesn't wait for, and how that ended is none of its concern. All children of a transition have keys
 * that begin alike.
 */
export function deleteOtherChildren(
  children: readonly Child[],
  fence: (task: Statement) => Statement,
): Statement {
  const wanted = rows(
    { parent_id: "text", name: "text", tenant: "text", unique_key: "text", prefix: "text" },
    children.map(({ parentId, name, tenant, key }) => [
      parentId,
      name,
      tenant,
      key,
      key!.slice(0, key!.lastIndexOf("/") + 1),
    ]),
  );
  const isOfParent = sql`wanted.parent_id = ${dependencies}.dependent_id`;
  return sql`
    delete from ${dependencies}
    where ${isAmong(sql`select task.task_id from ${fence(sql`task`)}`, sql`dependent_id`)}
      and exists (select 1 from ${tasks} child join ${wanted} wanted
          on substr(child.unique_key, 1, length(wanted.prefix)) = wanted.prefix
        where child.task_id = ${dependencies}.dependency_id and child.parent_id = ${dependencies}.dependent_id
          and ${isOfParent})
      and not exists (select 1 from ${tasks} child join ${wanted} wanted
          on child.tenant = wanted.tenant and child.name = wanted.name
            and child.unique_key = wanted.unique_key
        where child.task_id = ${dependencies}.dependency_id and ${isOfParent})`;
}

/** Notes whom the parents of new children wait for. */
export function insertChildDependencies(children: readonly Child[]): Statement[] {
  const fresh = rows(
    { dependency_id: "text", dependent_id: "text", place: "integer" },
    children.map(({ taskId, parentId, place }) => [taskId, parentId, place]),
  );
  const stored = sql`select child.task_id from ${fresh} fresh
    join ${tasks} child on child.task_id = fresh.dependency_id`;
  const parents = rows(
    { task_id: "text" },
    [...new Set(children.map(({ parentId }) => parentId))].map((taskId) => [taskId]),
  );
  return [
    // Those of an earlier time that are gone by now.
    sql`
      delete from ${dependencies}
      where ${isAmong(sql`select task_id from ${parents} parent`, sql`dependent_id`)}
        and not exists (select 1 from ${tasks} child where child.task_id = ${dependencies}.dependency_id)`,
    sql`
      insert into ${dependencies} (dependency_id, dependent_id, place)
      select fresh.dependency_id, fresh.dependent_id, fresh.place from ${fresh} fresh
      where exists (select 1 from ${tasks} child where child.task_id = fresh.dependency_id)
      on conflict do nothing`,
    sql`update ${tasks} set dependents = dependents + 1 where ${isAmong(stored, sql`task_id`)}`,
    wakeChildren([...new Set(children.map(({ parentId }) => parentId))]),
  ];
}
