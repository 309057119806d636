import { rows, sql, type Statement, table } from "../../store/sql.ts";

const tasks = table("step_tracker");
const limits = table("step_limit");

/** What a limit counts: the tasks of one key, those of one queue, or those of one tenant. */
export function keyScope(name: string, key: string): string {
  return `key/${name}/${key}`;
}

/** The runs of all flows that share a queue. */
export function queueScope(queue: string): string {
  return `queue/${queue}`;
}

export function tenantScope(tenant: string): string {
  return `tenant/${tenant}`;
}

/** The tenant that a scope names; undefined where it names something else. */
export function tenantOf(scope: string): string | undefined {
  return scope.startsWith("tenant/") ? scope.slice("tenant/".length) : undefined;
}

/** How many of a key run, given the expression that names its scope. */
export function heldOfKey(scope: Statement): Statement {
  return sql`(select count(*) from ${tasks} held
    where held.status = 'claimed' and ${isAbout(sql`held.group_key`, scope)})`;
}

/** How many of a tenant run. Those that go through no gate aren't counted: they are nobody's. */
export function heldOfTenant(tenant: Statement): Statement {
  return sql`(select count(*) from ${tasks} held
    where held.status = 'claimed' and held.gated = 1 and ${isAbout(sql`held.tenant`, tenant)})`;
}

/**
 * Equality, said so that a planner takes few for equal: it would read the whole table where nearly all
 * tasks ran under one key or tenant when it last looked.
 */
function isAbout(column: Statement, value: Statement): Statement {
  return sql`${column} between ${value} and ${value}`;
}

/**
 * Begins a query with `room (scope, room)`: how many more may run of each scope that has a limit. It
 * is exact for as long as this transaction holds the scopes, if it has them since an earlier statement.
 */
export function withRooms(scopes: readonly string[]): Statement {
  const wanted = rows(
    { scope: "text", tenant: "text" },
    [...new Set(scopes)].map((scope) => [scope, tenantOf(scope) ?? null]),
  );
  return sql`with room as (
    select given.scope, given.max_running - case when wanted.tenant is null
      then ${heldOfKey(sql`given.scope`)} else ${heldOfTenant(sql`wanted.tenant`)} end as room
    from ${wanted} wanted join ${limits} given on given.scope = wanted.scope)`;
}

/** Whether neither limit of a `task` is reached, as far as this statement can see. */
export const hasRoom = sql`not exists (select 1 from ${limits} given
    where given.scope = task.group_key and given.max_running <= ${heldOfKey(sql`given.scope`)})
  and not exists (select 1 from ${limits} given
    where given.scope = 'tenant/' || task.tenant
      and given.max_running <= ${heldOfTenant(sql`task.tenant`)})`;
