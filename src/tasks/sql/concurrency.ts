import {
  lockForUpdate,
  join,
  limit,
  returning,
  rowAddress,
  isAmong,
  rows,
  sql,
  type Statement,
  table,
  forUpdateSkipLocked,
  forUpdateOfTaskSkipLocked,
  forUpdateOfTask,
} from "../../store/sql.ts";
import { type ClaimCall, type FlowVersions, isDue, notNewer, claimWhere } from "./claim.ts";
import { runningOfTenant, isPending, tenantScope, withFreeSlots } from "./task-state.ts";

/**
 * Claims behind the gates. What to try is read first and chosen by `gates.ts`; then one transaction
 * holds the scopes of all of it, in one order, claims what there is room for, and sets aside what a key
 * has no room for. Whoever makes room holds the scope too, so either sees what the other has done.
 */
const tasks = table("task");
const limits = table("task_limit");

const isLimited = sql`task.status = 'pending' and task.parked = 4 and task.deaths < 2`;

/** A name and a tenant that tasks are at the gate with. */
export type NameAndTenant = { readonly name: string; readonly tenant: string };

/**
 * The next tenants of each name that have something at the gate, found by stepping along the index,
 * and whether as many of a tenant's run as may.
 */
export function limitedPairs(names: readonly string[], after: string, count: number): Statement {
  const wanted = rows(
    { name: "text" },
    names.map((name) => [name]),
  );
  return sql`
    with recursive step (name, tenant, nth) as (
      select wanted.name, (select min(task.tenant) from ${tasks} task
        where task.name = wanted.name and ${isLimited} and task.tenant > ${after}), 1
      from ${wanted} wanted
      union all
      select step.name, (select min(task.tenant) from ${tasks} task
        where task.name = step.name and ${isLimited} and task.tenant > step.tenant), step.nth + 1
      from step where step.tenant is not null and step.nth < ${count})
    select name, tenant, exists (select 1 from ${limits} given
      where given.scope = 'tenant/' || step.tenant
        and given.max_running <= ${runningOfTenant(sql`step.tenant`)}) as is_full
    from step where tenant is not null`;
}

/**
 * The first at the gate of each pair, by priority, then age, from a priority downwards. With each comes
 * the limit that is stored for its key: null where there is none, 0 where it was set by hand.
 */
export function selectCandidates(
  pairs: readonly NameAndTenant[],
  {
    count,
    fromPriority,
    flows,
  }: { count: number; fromPriority: number; flows?: FlowVersions | undefined },
): Statement {
  const parts = padded(pairs, { name: "", tenant: "" }).map(
    ({ name, tenant }) => sql`select * from (
      select task_id, name, tenant, concurrency_key, priority, created_at from ${tasks} task
      where name = ${name} and tenant = ${tenant} and ${isLimited} and priority <= ${fromPriority}
        and ${isDue} ${notNewer(flows, [name])}
      order by priority desc, created_at, task_id ${limit(count)}) of_pair`,
  );
  return sql`
    select ready.*, (select case when by_hand = 1 then 0 else max_running end from ${limits} given
      where given.scope = ready.concurrency_key) as stored_limit
    from (${join(parts, " union all ")}) ready`;
}

/** So that there are few different texts to plan, the parts of one are a power of two. */
function padded<Each>(all: readonly Each[], nothing: Each): Each[] {
  const parts = 2 ** Math.ceil(Math.log2(Math.max(1, all.length)));
  return [...all, ...Array<Each>(parts - all.length).fill(nothing)];
}

/** A task that is to be tried, in the order of trying. */
export type Candidate = {
  readonly taskId: string;
  readonly tenant: string;
  /** The scope of its key, and how many of that may run. */
  readonly group: string | null;
  readonly groupLimit: number;
};

function candidateRows(candidates: readonly Candidate[]) {
  return rows(
    { task_id: "text", place: "integer", concurrency_key: "text", tenant_scope: "text" },
    candidates.map(({ taskId, group, tenant }, at) => [taskId, at, group, tenantScope(tenant)]),
  );
}

function scopesOf(candidates: readonly Candidate[]): string[] {
  const scopes = candidates.flatMap(({ group, tenant }) => [
    ...(group === null ? [] : [group]),
    tenantScope(tenant),
  ]);
  return [...new Set(scopes)].toSorted();
}

/**
 * Holds the limits of candidates: those of keys by storing them, so that there is a row to hold and
 * that it says what the code says. One that was set by hand stays as it is.
 */
export function lockScopes(candidates: readonly Candidate[]): Statement[] {
  const byScope = new Map(candidates.map(({ group, groupLimit }) => [group, groupLimit]));
  const keys = scopesOf(candidates).filter((scope) => byScope.has(scope));
  const tenants = [...new Set(candidates.map(({ tenant }) => tenantScope(tenant)))];
  const fresh = rows(
    { scope: "text", max_running: "integer" },
    keys.map((scope) => [scope, byScope.get(scope)!]),
  );
  const storing = sql`
    insert into ${limits} (scope, max_running)
    select scope, max_running from ${fresh} fresh where true order by scope
    on conflict (scope) do update set max_running = excluded.max_running
    where ${limits}.by_hand = 0 and ${limits}.max_running <> excluded.max_running`;
  return [...(keys.length > 0 ? [storing] : []), lockLimits(tenants)];
}

/** Holds the limits of scopes that have one. Always in the same order, or two could wait for each other. */
export function lockLimits(scopes: readonly string[]): Statement {
  const wanted = rows(
    { scope: "text" },
    scopes.map((scope) => [scope]),
  );
  return sql`
    select scope from ${limits} where scope in (select scope from ${wanted} wanted)
    order by scope ${lockForUpdate}`;
}

/** Claims as many of the candidates as there is room for, of their keys and of their tenants. */
export function claimCandidates(
  claim: ClaimCall,
  candidates: readonly Candidate[],
  { alone = false }: { alone?: boolean } = {},
): Statement {
  // A key that lost its limit after it was read isn't claimed: there would be nothing to hold.
  const first = sql`
    ${withFreeSlots(scopesOf(candidates))}
    select address from (
      select address, place, tenant_room,
        row_number() over (partition by tenant order by place) as in_tenant
      from (
        select address, place, tenant, concurrency_key, group_room, tenant_room,
          row_number() over (partition by concurrency_key order by place) as in_group
        from (
          select task.${rowAddress} as address, wanted.place, task.tenant, task.concurrency_key,
            of_group.room as group_room, of_tenant.room as tenant_room
          from ${candidateRows(candidates)} wanted
          join ${tasks} task on task.task_id = wanted.task_id
          left join room of_group on of_group.scope = wanted.concurrency_key
          left join room of_tenant on of_tenant.scope = wanted.tenant_scope
          where ${isPending(sql`task`)} and task.parked = 4
            and coalesce(task.concurrency_key, '') = coalesce(wanted.concurrency_key, '')
            and ${alone ? sql`task.deaths >= 2` : sql`task.deaths < 2`} and ${isDue}
            ${notNewer(claim.flows, claim.names)}
          ${forUpdateOfTaskSkipLocked}) tried) by_group
      where concurrency_key is null or in_group <= group_room) by_tenant
    where tenant_room is null or in_tenant <= tenant_room
    order by place ${limit(claim.limit)}`;
  return claimWhere(claim, sql`${isAmong(first)}`);
}

/**
 * Sets candidates aside whose key has no room, so that nobody wades through them again until there is
 * some. What only its tenant keeps waiting stays where it is: a full tenant is passed over as a whole.
 */
export function blockCandidates(candidates: readonly Candidate[]): Statement {
  const keyed = candidates.filter(({ group }) => group !== null);
  const full = sql`
    from ${candidateRows(keyed)} wanted
    join ${tasks} task on task.task_id = wanted.task_id
    join room on room.scope = wanted.concurrency_key
    where ${isPending(sql`task`)} and task.parked = 4 and task.concurrency_key = wanted.concurrency_key
      and room.room <= 0`;
  const freeSlots = withFreeSlots(keyed.map(({ group }) => group!));
  return sql`
    update ${tasks} set parked = 3, blocked_by = concurrency_key
    where ${isAmong(sql`${freeSlots} select task.${rowAddress} ${full} ${forUpdateOfTaskSkipLocked}`)}
    ${returning(sql`task_id`, { before: sql`${freeSlots} select task.task_id ${full} ${forUpdateOfTask}` })}`;
}

/** A claim behind the gates as one transaction, and which of its answers say what was claimed and blocked. */
export function claimLimited(
  claim: ClaimCall,
  candidates: readonly Candidate[],
  options?: { alone: boolean },
): { statements: Statement[]; claimedAt: number; blockedAt: number | undefined } {
  const holding = lockScopes(candidates);
  const keyed = candidates.some(({ group }) => group !== null);
  const claiming = claimCandidates(claim, candidates, options);
  const statements = [...holding, claiming, ...(keyed ? [blockCandidates(candidates)] : [])];
  const claimedAt = holding.length;
  return { statements, claimedAt, blockedAt: keyed ? claimedAt + 1 : undefined };
}

/**
 * Lets as many of what was set aside try again as there is room for. For whoever has made some, and
 * holds the scopes; at most `count` of each.
 */
export function unblock(scopes: readonly string[], count: number): Statement {
  return sql`
    update ${tasks} set parked = 4, blocked_by = null
    where ${isAmong(sql`
      ${withFreeSlots(scopes)}
      select address from (
        select address, blocked_by,
          row_number() over (partition by blocked_by order by priority desc, created_at, task_id) as nth
        from (${firstBlocked(scopes, count)}) blocked) ranked
      left join room on room.scope = ranked.blocked_by
      where ranked.nth <= room.room
        or not exists (select 1 from ${limits} given where given.scope = ranked.blocked_by)`)}`;
}

/** The same for one of each, as it nearly always is: one look for each scope, however many there are. */
function unblockOne(scopes: readonly string[]): Statement {
  const wanted = rows(
    { scope: "text" },
    scopes.map((scope) => [scope]),
  );
  return sql`
    update ${tasks} set parked = 4, blocked_by = null
    where status = 'pending' and ${isAmong(sql`
      ${withFreeSlots(scopes)}
      select (select ${rowAddress} from ${tasks} task
        where task.blocked_by = wanted.scope and task.status = 'pending' and task.parked = 3
        order by task.priority desc, task.created_at, task.task_id limit 1 ${forUpdateOfTaskSkipLocked})
      from ${wanted} wanted left join room on room.scope = wanted.scope
      where room.room >= 1 or room.scope is null`)}`;
}

/** The same, whether or not there is room: whoever claims them will find out. */
export function unblockUnchecked(scopes: readonly string[], count: number): Statement {
  return sql`
    update ${tasks} set parked = 4, blocked_by = null
    where ${isAmong(sql`select address from (${firstBlocked(scopes, count)}) blocked`)}`;
}

function firstBlocked(scopes: readonly string[], count: number): Statement {
  const parts = padded(scopes, "").map(
    (scope) => sql`select * from (
      select ${rowAddress} as address, blocked_by, priority, created_at, task_id from ${tasks}
      where blocked_by = ${scope} and status = 'pending' and parked = 3
      order by priority desc, created_at, task_id ${limit(count)} ${forUpdateSkipLocked}) of_scope`,
  );
  return join(parts, " union all ");
}

/** An ending, as far as it makes room. */
type FreedSlot = {
  readonly status: string;
  readonly delayMs: number | null;
  readonly gate?: { readonly group: string | null };
};

// So many parts have room in one statement.
const scopesPerStatement = 128;

/**
 * What goes before and after a write of endings, so that others of their keys go on. What is given back
 * to run at once needs nothing: it is at the gate itself, and takes the room that it has left.
 */
export function unblockAfter(finishes: readonly FreedSlot[]): {
  holding: Statement[];
  freeing: Statement[];
} {
  const freed = new Map<string, number>();
  for (const { status, delayMs, gate } of finishes) {
    const group = gate?.group ?? null;
    if (group === null || (status === "pending" && delayMs === 0)) continue;
    freed.set(group, (freed.get(group) ?? 0) + 1);
  }
  if (freed.size === 0) return { holding: [], freeing: [] };
  const scopes = [...freed.keys()].toSorted();
  const ones = scopes.filter((scope) => freed.get(scope) === 1);
  const several = scopes.filter((scope) => freed.get(scope)! > 1);
  const freeing = ones.length > 0 ? [unblockOne(ones)] : [];
  for (let at = 0; at < several.length; at += scopesPerStatement) {
    freeing.push(unblock(several.slice(at, at + scopesPerStatement), Math.max(...freed.values())));
  }
  return { holding: [lockLimits(scopes)], freeing };
}
