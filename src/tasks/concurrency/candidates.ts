import { between, type Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import { limitRowsByName } from "../claim/capacity.ts";
import type { ClaimCall, FlowVersions, SharedNameLimit } from "../sql/claim.ts";
import {
  type Candidate,
  selectCandidates,
  type NameAndTenant,
  limitedPairs,
  claimLimited,
} from "../sql/concurrency.ts";

/** How many of a key run at once where nothing says otherwise. */
export const defaultKeyLimit = 1;

/** How the going round the tenants stands. */
export type TenantRound = {
  /** The tenant that was served last. */
  readonly after: string;
  /** Whether all that have something ready fit into one look. */
  readonly few: boolean;
};

export const firstRound: TenantRound = { after: "", few: true };

type CandidateRound = {
  readonly candidates: readonly Candidate[];
  /** How the round stands if none of them is served. */
  readonly round: TenantRound;
};

type CandidateOptions = {
  names: readonly string[];
  /** Those of the names that are flows: what only a later version may claim isn't tried. */
  flows?: FlowVersions | undefined;
  round: TenantRound;
  /** Names of which no more than so many are to be claimed. */
  most?: ReadonlyMap<string, number> | undefined;
  /** Names of which no more than so many are to be claimed together. */
  together?: readonly SharedNameLimit[] | undefined;
  /** How many are to be claimed at most. */
  limit: number;
  /** Only what has this priority or a lower one. */
  fromPriority: number;
  /** Tasks that this pod still runs, though they may have been given back. */
  held: readonly string[];
  /** What the code says of the keys of a name. */
  limitOf: LimitOf;
  /** Many at once, because the last ones were only set aside. */
  wide?: boolean;
};

export type LimitOf = (name: string) => number | undefined;

// One look steps from tenant to tenant, and asks for the first tasks of each.
const maxPairs = 64;
const maxReads = 4;
// A claim holds the scopes of all that it tries, and others wait for those.
const maxCandidates = 400;

/** Looks for what to try: the tenants that have something ready and room, in turn, and their first tasks. */
export async function readCandidates(
  database: Database,
  options: CandidateOptions,
): Promise<CandidateRound> {
  const { names, flows, limit, fromPriority } = options;
  const { pairs, round } = await readPairs(database, names, options.round);
  if (pairs.length === 0) return { candidates: [], round };
  const tenants = new Set(pairs.map(({ tenant }) => tenant)).size;
  const wanted = options.wide === true ? maxCandidates : Math.min(maxCandidates, limit * 2);
  const count = Math.ceil(wanted / tenants);
  const rows = await database.read(selectCandidates(pairs, { count, fromPriority, flows }));
  const held = new Set(options.held);
  const free = rows.filter((row) => !held.has(row["task_id"] as string));
  const turns = interleaveTenants(free, options.round.after);
  const inTurn = limitRowsByName(turns, options.most, options.together).slice(0, maxCandidates);
  return { candidates: inTurn.map((row) => toCandidate(row, options.limitOf)), round };
}

async function readPairs(
  database: Database,
  names: readonly string[],
  round: TenantRound,
): Promise<{ pairs: NameAndTenant[]; round: TenantRound }> {
  const count = Math.max(2, Math.floor(maxPairs / names.length));
  const pairs = new Map<string, NameAndTenant>();
  let { few } = round;
  let from = few ? "" : round.after;
  let wrapped = few;
  for (let looks = 0; looks < maxReads && pairs.size < maxPairs; looks++) {
    const page = completePage(await database.read(limitedPairs(names, from, count)), count);
    for (const pair of page.pairs) pairs.set(JSON.stringify(pair), pair);
    if (from === "") few = page.next === undefined;
    if (few) break;
    // From the last on to the first again, and no further than where it began.
    if (page.next === undefined) wrapped = true;
    from = page.next ?? "";
    if (wrapped && byBytes(from, round.after) >= 0) break;
  }
  const found = [...pairs.values()].slice(0, maxPairs);
  return { pairs: found, round: { after: few ? round.after : from, few } };
}

/**
 * What one look has found, as far as it is complete: where a name has more tenants than were asked for,
 * those of other names that come after are left for the next look, or they would always come first.
 */
function completePage(
  rows: readonly Row[],
  count: number,
): { pairs: NameAndTenant[]; next: string | undefined } {
  const ofName = new Map<string, string[]>();
  for (const row of rows) {
    const tenants = ofName.get(row["name"]) ?? [];
    tenants.push(row["tenant"]);
    ofName.set(row["name"], tenants);
  }
  const cut = [...ofName.values()].filter((tenants) => tenants.length >= count);
  const lasts = cut.map((tenants) => tenants.toSorted(byBytes).at(-1)!);
  const next = lasts.toSorted(byBytes)[0];
  const pairs = rows
    .filter((row) => next === undefined || byBytes(row["tenant"], next) <= 0)
    .filter((row) => !isTrue(row["is_full"]))
    .map((row): NameAndTenant => ({ name: row["name"], tenant: row["tenant"] }));
  return { pairs, next };
}

/**
 * One task of each tenant, then the second of each, and so on, beginning with the tenant after the one
 * that was served last. Within a tenant by priority, then age.
 */
function interleaveTenants<Each extends Row>(rows: readonly Each[], after: string): Each[] {
  const ofTenant = new Map<string, Each[]>();
  for (const row of rows) {
    const own = ofTenant.get(row["tenant"]) ?? [];
    own.push(row);
    ofTenant.set(row["tenant"], own);
  }
  const tenants = [...ofTenant.keys()].toSorted((one, other) => {
    const [first, second] = [byBytes(one, after) > 0, byBytes(other, after) > 0];
    return first === second ? byBytes(one, other) : first ? -1 : 1;
  });
  const queues = tenants.map((tenant) => ofTenant.get(tenant)!.toSorted(byAge));
  const longest = Math.max(0, ...queues.map((queue) => queue.length));
  const turns = Array.from({ length: longest }, (_, nth) => queues.map((queue) => queue[nth]));
  return turns.flat().filter((row) => row !== undefined);
}

/** The tenant whose turn came last among those that were claimed. */
export function servedLast(
  candidates: readonly Candidate[],
  ids: ReadonlySet<string>,
): string | undefined {
  return candidates.findLast(({ taskId }) => ids.has(taskId))?.tenant;
}

function toCandidate(row: Row, limitOf: LimitOf): Candidate {
  const stored = Number(row["stored_limit"] ?? 0);
  const usual = stored > 0 ? stored : defaultKeyLimit;
  return {
    taskId: row["task_id"],
    tenant: row["tenant"],
    group: row["concurrency_key"],
    groupLimit: limitOf(row["name"]) ?? usual,
  };
}

function byAge(one: Row, other: Row): number {
  const priorities = Number(other["priority"]) - Number(one["priority"]);
  const ages = Number(one["created_at"]) - Number(other["created_at"]);
  return priorities || ages || byBytes(one["task_id"], other["task_id"]);
}

// As the databases sort, which isn't quite as JavaScript does.
function byBytes(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}

/** SQLite has no booleans. */
function isTrue(value: unknown): boolean {
  return value === true || Number(value) === 1;
}

/** The part of a claim that goes through the gates. */
type LimitedClaim = {
  readonly statements: ReturnType<typeof claimLimited>["statements"];
  /** Takes its answers, and remembers whose turn is next. */
  applyTables(tables: readonly Row[][]): LimitedResult;
};

type LimitedResult = {
  readonly rows: readonly Row[];
  readonly ids: ReadonlySet<string>;
  /** Whether anything went through the gates or was set aside, so that others may be in front now. */
  readonly moved: boolean;
};

type LimitedClaimsParts = {
  database: Database;
  random: Random;
  limitOf?: LimitOf;
};

const minPriority = -100;
const maxPriority = 100;
// Every sixteenth look begins anywhere in the order of priorities, so that low ones move too.
const randomPriorityEvery = 16;
const maxReservedRows = 16;

/** Decides what a claim tries behind the gates, and how much of it is left for what is behind none. */
export function createLimitedClaims(parts: LimitedClaimsParts) {
  const { database, random, limitOf = () => undefined } = parts;
  let round = firstRound;
  let widen = false;
  let unlimitedWaits = false;
  let reads = 0;
  /** Tasks that must run alone and were marked for this pod. */
  const reservedRows = new Map<string, Row>();

  const limitedClaimOf = (
    call: ClaimCall,
    candidates: readonly Candidate[],
    alone: boolean,
  ): LimitedClaim => {
    const { statements, claimedAt, blockedAt } = claimLimited(call, candidates, { alone });
    return {
      statements,
      applyTables(tables) {
        const rows = tables[claimedAt]!;
        const blocked = blockedAt === undefined ? 0 : tables[blockedAt]!.length;
        const ids = new Set(rows.map((row) => row["task_id"] as string));
        const after = servedLast(candidates, ids);
        if (after !== undefined && !alone) round = { ...round, after };
        widen = blocked > 0;
        return { rows, ids, moved: rows.length + blocked > 0 };
      },
    };
  };

  return {
    /** What is ready behind the gates, as part of a claim; undefined where there is nothing to try. */
    async prepare(call: ClaimCall): Promise<LimitedClaim | undefined> {
      reads++;
      // Where others wait behind no gate, half of what this pod has free is theirs.
      const turn = reads % 2;
      const most = unlimitedWaits ? Math.floor((call.limit + turn) / 2) : call.limit;
      if (most === 0) return undefined;
      const anywhere = reads % randomPriorityEvery === 0;
      const tries = await readCandidates(database, {
        names: call.names,
        flows: call.flows,
        most: call.most,
        together: call.together,
        held: call.held ?? [],
        round,
        limit: most,
        fromPriority: anywhere ? between(random, minPriority, maxPriority) : maxPriority,
        limitOf,
        wide: widen,
      });
      ({ round } = tries);
      if (tries.candidates.length === 0) return undefined;
      return limitedClaimOf({ ...call, limit: most }, tries.candidates, false);
    },
    /** The task that this pod has emptied itself for, if that is behind a gate. */
    prepareAlone(call: ClaimCall, taskId: string): LimitedClaim | undefined {
      const row = reservedRows.get(taskId);
      if (row === undefined || !call.names.includes(row["name"])) return undefined;
      const { tenant, concurrency_key: group } = row;
      const groupLimit = limitOf(row["name"]) ?? defaultKeyLimit;
      return limitedClaimOf(call, [{ taskId, tenant, group, groupLimit }], true);
    },
    /** Remembers the gate of a task that was marked for this pod. */
    rememberReserved(row: Row | undefined): void {
      if (row === undefined || Number(row["limited"]) !== 1) return;
      if (reservedRows.size >= maxReservedRows) reservedRows.clear();
      reservedRows.set(row["task_id"], row);
    },
    /** Whether there is a backlog behind no gate. */
    setUnlimitedBacklog(full: boolean): void {
      unlimitedWaits = full;
    },
  };
}
