import { forUpdateOfTask, isAmong, rows, sql, type Statement, table } from "../../store/sql.ts";
import { startedOver } from "./inspect.ts";
import { forgetSteps } from "./steps.ts";
import type { NewTask } from "./enqueue.ts";
import { nextSeq } from "./task-state.ts";
import { wakeChildren } from "./dependencies.ts";

/** What a write of a run does to other rows: its children and its signals. */
const tasks = table("task");
const events = table("task_event");
const signals = table("task_signal");
const dependencies = table("task_dependency");

/** A run that another run starts, and its index among those. */
export type Child = NewTask & { readonly parentId: string; readonly place: number };

/** Marks the signals that runs have consumed. */
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
 * A restarted run starts its children again. Completed children exist already, by their keys, and
 * are kept. The others are restarted.
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
  return startTasksOver(ended);
}

/** Starts over the tasks and runs that a query finds, as a retry does. */
export function startTasksOver(ended: Statement): Statement[] {
  const among = isAmong(ended, sql`task_id`);
  return [
    sql`
      insert into ${events} (task_id, seq, type)
      select task_id, ${nextSeq(sql`task.task_id`)}, 'retried' from ${tasks} task
      where ${among} ${forUpdateOfTask}`,
    forgetSteps(ended, "failed"),
    sql`update ${tasks} set ${startedOver} where ${among}`,
  ];
}

/**
 * A restarted run may start fewer children than before, or others. It no longer waits for the rest,
 * and their outcome does not affect it. All children of a transition have keys with the same
 * prefix.
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

/** Stores the dependencies of runs on their new children. */
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
    // Children of an earlier generation that are deleted by now.
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
