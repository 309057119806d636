import { forUpdate, isAmong, rows, sql, type Statement, table } from "../../store/sql.ts";
import { dropReferences, type FileOwner } from "./files.ts";

// What new tasks refer to. A task gets references of its own in the transaction that stores it: a copy of what
// an upload, another task or a session refers to.

const references = table("file_reference");
const tasks = table("task");

/** A file that a new task refers to, and whose reference it is found by. */
export type FileLink = {
  readonly taskId: string;
  readonly tenant: string;
  readonly hash: string;
  readonly from: FileOwner;
};

const linkColumns = {
  task_id: "text",
  tenant: "text",
  hash: "text",
  from_kind: "text",
  from_id: "text",
} as const;

function wantedRows(links: readonly FileLink[]) {
  return rows(
    linkColumns,
    links.map(({ taskId, tenant, hash, from }) => [taskId, tenant, hash, from.kind, from.id]),
  );
}

/** A reference that a row of `wanted` is found by, of the same tenant. */
const isSource = sql`source.owner_kind = wanted.from_kind and source.owner_id = wanted.from_id
  and source.hash = wanted.hash and exists (select 1 from ${table("file")} file
    where file.file_id = source.file_id and file.tenant = wanted.tenant)`;

/**
 * Locks the references that new tasks get copies of. Goes before all other statements: the collector, and what
 * deletes the owner, leave them until the transaction has ended, and a file with a reference is never deleted.
 */
export function lockSources(links: readonly FileLink[]): Statement {
  const wanted = wantedRows(links);
  return sql`
    select hash from ${references} source
    where ${isAmong(sql`select from_id from ${wanted} wanted`, sql`owner_id`)}
      and exists (select 1 from ${wanted} wanted where wanted.from_kind = source.owner_kind
        and wanted.from_id = source.owner_id and wanted.hash = source.hash)
    order by owner_kind, owner_id, hash ${forUpdate}`;
}

/** The condition that all of these are there. */
export function haveSources(links: readonly FileLink[]): Statement {
  return sql`not exists (select 1 from ${wantedRows(links)} wanted
    where not exists (select 1 from ${references} source where ${isSource}))`;
}

/** Has stored tasks refer to their files. Goes after the insert; a task that wasn't stored gets none. */
export function linkFiles(links: readonly FileLink[]): Statement {
  return sql`
    insert into ${references} as referring
      (owner_kind, owner_id, hash, file_id, size, metadata, kept)
    select distinct 'task', wanted.task_id, source.hash, source.file_id, source.size, source.metadata, 1
    from ${wantedRows(links)} wanted join ${references} source on ${isSource}
    where wanted.task_id = (select task_id from ${tasks} where task_id = wanted.task_id)
    on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null`;
}

/** The tasks that are not stored, because a file of theirs is gone. Goes last. */
export function findUnlinked(links: readonly FileLink[]): Statement {
  const wanted = wantedRows(links);
  return sql`
    select wanted.task_id, wanted.hash from ${wanted} wanted
    where not exists (select 1 from ${references} source where ${isSource})
      and not exists (select 1 from ${tasks} task where task.task_id = wanted.task_id)`;
}

/**
 * Has tasks that have replaced another one's payload refer to its new files alone. `replaced` finds their ids as
 * `task_id`, with that of the new task as `new_id`.
 */
export function replaceFiles(links: readonly FileLink[], replaced: Statement): Statement[] {
  return [
    ...dropReferences(sql`owner_kind = 'task'
      and ${isAmong(sql`select task_id from (${replaced}) holder`, sql`owner_id`)}`),
    sql`
      insert into ${references} as referring
        (owner_kind, owner_id, hash, file_id, size, metadata, kept)
      select distinct 'task', holder.task_id, source.hash, source.file_id, source.size,
        source.metadata, 1
      from (${replaced}) holder
      join ${wantedRows(links)} wanted on wanted.task_id = holder.new_id
      join ${references} source on ${isSource}
      where 1 = 1
      on conflict (owner_kind, owner_id, hash) do update set kept = 1, token = null`,
  ];
}

/** Has a follow-up of a failure refer to all that the failed task refers to: it gets the same input. */
export function copyTaskFiles(pairs: readonly { from: string; to: string }[]): Statement {
  const wanted = rows(
    { from_id: "text", to_id: "text" },
    pairs.map(({ from, to }) => [from, to]),
  );
  return sql`
    insert into ${references} as referring
      (owner_kind, owner_id, hash, file_id, size, metadata, kept)
    select 'task', wanted.to_id, source.hash, source.file_id, source.size, source.metadata, 1
    from ${wanted} wanted join ${references} source
      on source.owner_kind = 'task' and source.owner_id = wanted.from_id and source.kept = 1
    where wanted.to_id = (select task_id from ${tasks} where task_id = wanted.to_id)
    on conflict (owner_kind, owner_id, hash) do nothing`;
}
