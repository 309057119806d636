import { tenantScope } from "../../protocol/task-options.ts";
import {
  forUpdate,
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
import { type ClaimCall, type NameVersions, isDue, notNewer, claimWhere } from "./claim.ts";
import {
  freeSlotsOfKey,
  freeSlotsOfTenant,
  isBlocked,
  isPending,
  ofTask,
  parkedAs,
  runningOfKey,
  runningOfTenant,
} from "./task-state.ts";

/**
 * Claims of limited tasks. `concurrency/candidates.ts` reads and chooses the candidates first. Then
 * one transaction locks the scopes of all of them, in one order, claims those with free slots, and
 * marks those blocked whose key has none. A write that frees a slot locks the scope too, so each
 * sees what the other has done.
 */
const tasks = table("task");
const limits = table("task_limit");

// The most parts that one statement takes.
const scopesPerStatement = 128;

/** A name and a tenant with limited tasks that are ready. */
export type NameAndTenant = { readonly name: string; readonly tenant: string };

/** The same, how many of its tasks to read, and which to pass over. */
export type CandidatePair = NameAndTenant & {
  readonly count: number;
  readonly without: readonly string[];
};

/** A task to try, in the order of trying. */
export type Candidate = {
  readonly taskId: string;
  readonly tenant: string;
  /** The scope of its key, and that scope's limit. */
  readonly scope: string | null;
  readonly scopeLimit: number;
  /** True if that limit was stored when the candidate was read. */
  readonly isStored?: boolean;
};

/** The fields of a finish that decide whether it frees a slot. */
type FreedSlot = {
  readonly status: string;
  readonly delayMs: number | null;
  readonly limited?: { readonly scope: string | null };
};

/**
 * The next tenants of each name with limited tasks, found by stepping along the index, and whether
 * the tenant's limit is reached.
 */
export function limitedPairs(names: readonly string[], after: string, count: number): Statement {
  const wanted = rows(
    { name: "text" },
    names.map((name) => [name]),
  );
  return sql`
    with recursive step (name, tenant, nth) as (
      select wanted.name, (select min(task.tenant) from ${tasks} task
        where task.name = wanted.name and ${ofTask.isLimited} and task.tenant > ${after}), 1
      from ${wanted} wanted
      union all
      select step.name, (select min(task.tenant) from ${tasks} task
        where task.name = step.name and ${ofTask.isLimited} and task.tenant > step.tenant), step.nth + 1
      from step where step.tenant is not null and step.nth < ${count})
    select name, tenant, exists (select 1 from ${limits} given
      where given.scope = 'tenant/' || step.tenant
        and given.max_running <= ${runningOfTenant(sql`step.tenant`)}) as is_full
    from step where tenant is not null`;
}

type CandidateVersions = {
  readonly flows?: NameVersions | undefined;
  readonly versions?: NameVersions | undefined;
};

/**
 * The first limited tasks of each pair, by priority, then age, from a priority downwards. Each
 * comes with the stored limit of its key: null if there is none, 0 if it was set with `limits`.
 */
export function selectCandidates(
  pairs: readonly CandidatePair[],
  { fromPriority, ...known }: { fromPriority: number } & CandidateVersions,
): Statement {
  const idsOf = (ids: readonly string[]) =>
    rows(
      { task_id: "text" },
      ids.map((taskId) => [taskId]),
    );
  const parts = padded(pairs, { name: "", tenant: "", count: 0, without: [] }).map(
    ({ name, tenant, count, without }) => sql`select * from (
      select task_id, name, tenant, concurrency_key, priority, created_at from ${tasks} task
      where name = ${name} and tenant = ${tenant} and ${ofTask.isLimited} and priority <= ${fromPriority}
        and ${isDue} ${notNewer(known, [name])}
        and task_id not in (select task_id from ${idsOf(without)} without)
      order by priority desc, created_at, task_id ${limit(count)}) of_pair`,
  );
  return sql`
    select ready.*, (select case when by_hand = 1 then 0 else max_running end from ${limits} given
      where given.scope = ready.concurrency_key) as stored_limit
    from (${join(parts, " union all ")}) ready`;
}

/**
 * Locks the limits of candidates. Limits of keys are stored as declared in code, so that there is a
 * row to lock. One set with `limits` stays as it is. If all of them were stored when they were read,
 * they are only locked: a key whose limit was deleted since is not claimed.
 */
export function lockScopes(candidates: readonly Candidate[]): Statement[] {
  const keys = new Map<string, number>();
  for (const { scope, scopeLimit } of candidates) if (scope !== null) keys.set(scope, scopeLimit);
  const tenants = [...new Set(candidates.map(({ tenant }) => tenantScope(tenant)))];
  // Scopes of tenants are the last ones in the order of scopes, so both ways lock in that order.
  if (candidates.every(({ scope, isStored }) => scope === null || isStored === true)) {
    return [lockLimits([...keys.keys(), ...tenants])];
  }
  const fresh = rows({ scope: "text", max_running: "integer" }, [...keys]);
  const storing = sql`
    insert into ${limits} (scope, max_running)
    select scope, max_running from ${fresh} fresh where true order by scope
    on conflict (scope) do update set max_running = excluded.max_running
    where ${limits}.by_hand = 0 and ${limits}.max_running <> excluded.max_running`;
  return [...(keys.size > 0 ? [storing] : []), lockLimits(tenants)];
}

/** Locks the limits of scopes that have one. Always in the same order, to avoid deadlocks. */
export function lockLimits(scopes: readonly string[]): Statement {
  const wanted = rows(
    { scope: "text" },
    scopes.map((scope) => [scope]),
  );
  return sql`
    select count(*) from (
      select scope from ${limits} where scope in (select scope from ${wanted} wanted)
      order by scope ${forUpdate}) locked`;
}

/** Claims the candidates with free slots, of their keys and of their tenants. */
export function claimCandidates(
  claim: ClaimCall,
  candidates: readonly Candidate[],
  { alone = false }: { alone?: boolean } = {},
): Statement {
  const tried = sql`
    select ${rowAddress("task", sql`task`)} as address, wanted.place, task.tenant, task.concurrency_key
    from ${candidateRows(candidates)} wanted
    join ${tasks} task on task.task_id = wanted.task_id
    where ${isPending(sql`task`)} and task.parked = ${parkedAs.limited}
      and coalesce(task.concurrency_key, '') = coalesce(wanted.concurrency_key, '')
      and ${alone ? ofTask.runsAlone : ofTask.runsBesideOthers} and ${isDue}
      ${notNewer(claim, claim.names)}
    ${forUpdateOfTaskSkipLocked}`;
  // A key whose limit was deleted after it was read is not claimed, because there is no row to lock.
  const ofKeys = isRepeated(candidates)
    ? withinSlots(tried, {
        scope: sql`concurrency_key`,
        slots: freeSlotsOfKey(sql`tried.concurrency_key`),
        isFree: sql`concurrency_key is null or nth <= slots`,
      })
    : sql`select * from (${tried}) tried
        where concurrency_key is null or ${freeSlotsOfKey(sql`tried.concurrency_key`)} >= 1`;
  const ofTenants = candidates.some(({ tenant }) => tenant !== "default")
    ? withinSlots(ofKeys, {
        scope: sql`tenant`,
        slots: freeSlotsOfTenant(sql`tried.tenant`),
        isFree: sql`slots is null or nth <= slots`,
      })
    : ofKeys;
  const first = sql`
    select address from (${ofTenants}) free order by place ${limit(claim.limit)}`;
  return claimWhere(claim, sql`${isAmong(first)}`);
}

/**
 * Marks candidates blocked whose key has no free slot, so that claims do not read them again until
 * it has one. Tasks held back only by their tenant stay limited: a tenant at its limit is skipped
 * as a whole.
 */
export function blockCandidates(claim: ClaimCall, candidates: readonly Candidate[]): Statement {
  const keyed = candidates.filter(({ scope }) => scope !== null);
  // Only of keys with tasks that were not claimed the running ones are counted, and once each.
  // Nearly always all were claimed, and then no task is looked at.
  const claimed = sql`(select count(*) from ${tasks}
    where claimed_by = ${claim.podId} and claim_call = ${claim.call} and status = 'claimed')`;
  const full = (columns: Statement, lock: typeof forUpdateOfTask) => sql`
    with tried as (
      select ${rowAddress("task", sql`task`)} as address, task.task_id, task.concurrency_key as scope
      from ${candidateRows(keyed)} wanted join ${tasks} task on task.task_id = wanted.task_id
      where ${isPending(sql`task`)} and task.parked = ${parkedAs.limited}
        and task.concurrency_key = wanted.concurrency_key
        and ${claimed} < ${candidates.length} ${lock})
    select ${columns} from tried where ${isAmong(
      sql`
      select given.scope from ${limits} given
      where ${isAmong(sql`select scope from tried`, sql`given.scope`)}
        and given.max_running <= ${runningOfKey(sql`given.scope`)}`,
      sql`tried.scope`,
    )}`;
  return sql`
    update ${tasks} set parked = ${parkedAs.blocked}, blocked_by = concurrency_key
    where ${isAmong(full(sql`address`, forUpdateOfTaskSkipLocked))}
    ${returning(sql`task_id`, { before: full(sql`task_id`, forUpdateOfTask) })}`;
}

/**
 * A claim of limited tasks as one transaction, and the indexes of the answers with claimed and
 * blocked tasks.
 */
export function claimLimited(
  claim: ClaimCall,
  candidates: readonly Candidate[],
  options?: { alone: boolean },
): { statements: Statement[]; claimedAt: number; blockedAt: number | undefined } {
  const holding = lockScopes(candidates);
  const keyed = candidates.some(({ scope }) => scope !== null);
  const claiming = claimCandidates(claim, candidates, options);
  const statements = [...holding, claiming, ...(keyed ? [blockCandidates(claim, candidates)] : [])];
  const claimedAt = holding.length;
  return { statements, claimedAt, blockedAt: keyed ? claimedAt + 1 : undefined };
}

/**
 * Unblocks as many tasks as there are free slots, at most `count` per scope. For a transaction that
 * has freed slots and locked the scopes.
 */
export function unblock(scopes: readonly string[], count: number): Statement {
  const nth = sql`row_number() over (partition by blocked_by order by priority desc, created_at, task_id)`;
  return sql`
    update ${tasks} set parked = ${parkedAs.limited}, blocked_by = null
    where ${isAmong(sql`
      select address from (
        select address, nth, max(slots) over (partition by blocked_by) as slots
        from (
          select address, blocked_by, ${nth} as nth,
            case when ${nth} = 1 then ${freeSlotsOfKey(sql`blocked.blocked_by`)} end as slots
          from (${firstBlocked(scopes, count)}) blocked) with_slots) ranked
      where slots is null or ranked.nth <= slots`)}`;
}

/** Like `unblock`, without checking for free slots, which the claim checks. */
export function unblockUnchecked(scopes: readonly string[], count: number): Statement {
  return sql`
    update ${tasks} set parked = ${parkedAs.limited}, blocked_by = null
    where ${isAmong(sql`select address from (${firstBlocked(scopes, count)}) blocked`)}`;
}

/**
 * The statements before and after a write of finishes that unblock other tasks of their keys. A
 * task that is released to run at once needs none: it is limited itself, and takes the slot that it
 * has freed.
 */
export function unblockAfter(finishes: readonly FreedSlot[]): {
  holding: Statement[];
  freeing: Statement[];
} {
  const freed = new Map<string, number>();
  for (const { status, delayMs, limited } of finishes) {
    const scope = limited?.scope ?? null;
    if (scope === null || (status === "pending" && delayMs === 0)) continue;
    freed.set(scope, (freed.get(scope) ?? 0) + 1);
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

/**
 * Of the candidates `tried`, as many of each scope as it has free slots. They are counted once, with
 * the first of its candidates.
 */
function withinSlots(
  tried: Statement,
  { scope, slots, isFree }: { scope: Statement; slots: Statement; isFree: Statement },
): Statement {
  const nth = sql`row_number() over (partition by ${scope} order by place)`;
  return sql`
    select address, place, tenant, concurrency_key from (
      select address, place, tenant, concurrency_key, nth,
        max(first_slots) over (partition by ${scope}) as slots
      from (
        select address, place, tenant, concurrency_key, ${nth} as nth,
          case when ${nth} = 1 then ${slots} end as first_slots
        from (${tried}) tried) counted) ranked
    where ${isFree}`;
}

function isRepeated(candidates: readonly Candidate[]): boolean {
  const keys = candidates.flatMap(({ scope }) => scope ?? []);
  return new Set(keys).size < keys.length;
}

/**
 * Pads the parts of a statement to a power of two, so that there are few different texts to plan.
 */
function padded<Each>(all: readonly Each[], nothing: Each): Each[] {
  const parts = 2 ** Math.ceil(Math.log2(Math.max(1, all.length)));
  return [...all, ...Array<Each>(parts - all.length).fill(nothing)];
}

function candidateRows(candidates: readonly Candidate[]) {
  return rows(
    { task_id: "text", place: "integer", concurrency_key: "text" },
    candidates.map(({ taskId, scope }, at) => [taskId, at, scope]),
  );
}

/**
 * Like `unblock`, for one task of each scope, which is nearly always the case: one lookup per
 * scope.
 */
function unblockOne(scopes: readonly string[]): Statement {
  const wanted = rows(
    { scope: "text" },
    scopes.map((scope) => [scope]),
  );
  // Few keys have blocked tasks, and only of those the running tasks are counted.
  return sql`
    update ${tasks} set parked = ${parkedAs.limited}, blocked_by = null
    where status = 'pending' and ${isAmong(sql`
      with next as materialized (
        select wanted.scope, (select ${rowAddress("task")} from ${tasks} task
          where task.blocked_by = wanted.scope and ${ofTask.isBlocked}
          order by task.priority desc, task.created_at, task.task_id limit 1 ${forUpdateOfTaskSkipLocked}) as address
        from ${wanted} wanted)
      select address from next
      where address is not null and coalesce(${freeSlotsOfKey(sql`next.scope`)}, 1) > 0`)}`;
}

function firstBlocked(scopes: readonly string[], count: number): Statement {
  const parts = padded(scopes, "").map(
    (scope) => sql`select * from (
      select ${rowAddress("task")} as address, blocked_by, priority, created_at, task_id from ${tasks}
      where blocked_by = ${scope} and ${isBlocked}
      order by priority desc, created_at, task_id ${limit(count)} ${forUpdateSkipLocked}) of_scope`,
  );
  return join(parts, " union all ");
}
