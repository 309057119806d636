import { between, type Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import { limitRowsByName } from "../claim/capacity.ts";
import type { ClaimCall, NameVersions, SharedNameLimit } from "../sql/claim.ts";
import {
  type Candidate,
  selectCandidates,
  type NameAndTenant,
  limitedPairs,
  claimLimited,
} from "../sql/concurrency.ts";

/** The limit of a key when neither the code nor the store sets one. */
export const defaultKeyLimit = 1;

/** The position of the round-robin over tenants. */
export type TenantRound = {
  /** The tenant that was served last. */
  readonly after: string;
  /** True if all tenants with ready tasks fit into one read. */
  readonly few: boolean;
};

export const firstRound: TenantRound = { after: "", few: true };

type CandidateRound = {
  readonly candidates: readonly Candidate[];
  /** The position if none of the candidates is claimed. */
  readonly round: TenantRound;
};

type CandidateOptions = {
  names: readonly string[];
  /** The names that are flows. Runs that only a later version may claim are skipped. */
  flows?: NameVersions | undefined;
  /** The versions of this pod's tasks. Those that only a later version may claim are skipped. */
  versions?: NameVersions | undefined;
  round: TenantRound;
  /** The most tasks of each name to claim. */
  maxByName?: ReadonlyMap<string, number> | undefined;
  /** The most tasks of several names together to claim. */
  together?: readonly SharedNameLimit[] | undefined;
  /** The most tasks to claim. */
  limit: number;
  /** Only tasks of this priority or a lower one. */
  fromPriority: number;
  /** Tasks that this pod still runs, though they may have been released. */
  held: readonly string[];
  /** Candidates of other claims of this pod in flight, which have probably taken them. */
  trying?: readonly Candidate[];
  /** The limit per key of a name, as declared in code. */
  limitOf: LimitOf;
  /** Read many, because the last candidates were only marked blocked. */
  wide?: boolean;
};

export type LimitOf = (name: string) => number | undefined;

/** The statements of a claim that take limited tasks. */
export type LimitedClaim = {
  readonly candidates: readonly Candidate[];
  readonly statements: ReturnType<typeof claimLimited>["statements"];
  /** Reads their results and advances the round-robin. */
  applyTables(tables: readonly Row[][]): LimitedResult;
  /** The claim is over, whatever came of it. */
  settle(): void;
};

/** A claim's turn to choose candidates. */
type CandidateTurn = {
  /** Resolves to undefined if there are no candidates. */
  readonly prepared: Promise<LimitedClaim | undefined>;
  /** The claim doesn't wait for its candidates any longer. */
  settle(): void;
};

type LimitedResult = {
  readonly rows: readonly Row[];
  readonly ids: ReadonlySet<string>;
  /** True if tasks were claimed or marked blocked, so that other tasks may be first now. */
  readonly moved: boolean;
};

type LimitedClaimsParts = {
  database: Database;
  random: Random;
  limitOf?: LimitOf;
};

// One read steps from tenant to tenant, and the next one reads the first tasks of each.
const maxPairs = 64;
const maxReads = 4;
// A claim locks the scopes of all its candidates, and other claims wait for these locks.
const maxCandidates = 400;
const minPriority = -100;
const maxPriority = 100;
// Every 16th read starts at a random priority, so that low ones progress too.
const randomPriorityEvery = 16;
const maxReservedRows = 16;

/**
 * Chooses the limited tasks that a claim tries, and how much of the claim is left for unlimited
 * tasks.
 */
export function createLimitedClaims(parts: LimitedClaimsParts) {
  const { database, random, limitOf = () => undefined } = parts;
  let round = firstRound;
  let widen = false;
  let unlimitedWaits = false;
  let reads = 0;
  /** Tasks that must run alone and are reserved for this pod. */
  const reservedRows = new Map<string, Row>();
  /** The candidates of claims in flight. A claim beside them that tried the same would take none. */
  const trying = new Set<{ candidates: readonly Candidate[] }>();
  /** Resolves once the last turn has its candidates. */
  let lastTurn: Promise<void> = Promise.resolve();

  const limitedClaimOf = (
    call: ClaimCall,
    candidates: readonly Candidate[],
    { alone = false, settle = () => {} }: { alone?: boolean; settle?: () => void },
  ): LimitedClaim => {
    const { statements, claimedAt, blockedAt } = claimLimited(call, candidates, { alone });
    return {
      candidates,
      statements,
      settle,
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

  const prepare = async (
    call: ClaimCall,
    settle: () => void,
  ): Promise<LimitedClaim | undefined> => {
    reads++;
    // If unlimited tasks have a backlog, they get half of this pod's free slots.
    const turn = reads % 2;
    const limit = unlimitedWaits ? Math.floor((call.limit + turn) / 2) : call.limit;
    if (limit === 0) return undefined;
    const anywhere = reads % randomPriorityEvery === 0;
    const tries = await readCandidates(database, {
      names: call.names,
      flows: call.flows,
      versions: call.versions,
      maxByName: call.maxByName,
      together: call.together,
      held: call.held ?? [],
      trying: [...trying].flatMap(({ candidates }) => candidates),
      round,
      limit,
      fromPriority: anywhere ? between(random, minPriority, maxPriority) : maxPriority,
      limitOf,
      wide: widen,
    });
    ({ round } = tries);
    if (tries.candidates.length === 0) return undefined;
    return limitedClaimOf({ ...call, limit }, tries.candidates, { settle });
  };

  return {
    /** Prepares the limited part of a claim. */
    prepare(call: ClaimCall): CandidateTurn {
      const mine = { candidates: [] as readonly Candidate[] };
      trying.add(mine);
      const before = lastTurn;
      const { promise, resolve: next } = Promise.withResolvers<void>();
      lastTurn = promise;
      const settle = () => {
        trying.delete(mine);
        next();
      };
      const prepareNext = async () => {
        // One after the other, so that each knows what the claims before it try.
        await before;
        const claim = await prepare(call, settle);
        if (claim === undefined) settle();
        else mine.candidates = claim.candidates;
        next();
        return claim;
      };
      return { prepared: prepareNext(), settle };
    },
    /** Prepares the claim of the task that this pod has drained for, if that task is limited. */
    prepareAlone(call: ClaimCall, taskId: string): LimitedClaim | undefined {
      const row = reservedRows.get(taskId);
      if (row === undefined || !call.names.includes(row["name"])) return undefined;
      const { tenant, concurrency_key: scope } = row;
      const scopeLimit = limitOf(row["name"]) ?? defaultKeyLimit;
      return limitedClaimOf(call, [{ taskId, tenant, scope, scopeLimit }], { alone: true });
    },
    /** Remembers the scope of a task that is reserved for this pod. */
    rememberReserved(row: Row | undefined): void {
      if (row === undefined || Number(row["limited"]) !== 1) return;
      if (reservedRows.size >= maxReservedRows) reservedRows.clear();
      reservedRows.set(row["task_id"], row);
    },
    /** Sets whether unlimited tasks have a backlog. */
    setUnlimitedBacklog(full: boolean): void {
      unlimitedWaits = full;
    },
  };
}

/**
 * Reads candidates for a claim: tenants with ready tasks and free slots, in turn, and their first
 * tasks.
 */
export async function readCandidates(
  database: Database,
  options: CandidateOptions,
): Promise<CandidateRound> {
  const { names, flows, versions, limit, fromPriority } = options;
  const { pairs, round } = await readPairs(database, names, options.round);
  if (pairs.length === 0) return { candidates: [], round };
  const tenants = new Set(pairs.map(({ tenant }) => tenant)).size;
  const wanted = options.wide === true ? maxCandidates : Math.min(maxCandidates, limit * 2);
  const { trying = [] } = options;
  const triedOf = Map.groupBy(trying, ({ tenant }) => tenant);
  const ofPairs = pairs.map((pair) => ({
    ...pair,
    count: Math.ceil(wanted / tenants),
    without: triedOf.get(pair.tenant)?.map(({ taskId }) => taskId) ?? [],
  }));
  const rows = await database.read(selectCandidates(ofPairs, { fromPriority, flows, versions }));
  const held = new Set(options.held);
  const free = rows.filter((row) => !held.has(row["task_id"] as string));
  const turns = interleaveTenants(free, options.round.after);
  const inTurn = limitRowsByName(turns, options.maxByName, options.together).slice(
    0,
    maxCandidates,
  );
  return { candidates: inTurn.map((row) => toCandidate(row, options.limitOf)), round };
}

/** The tenant of the last claimed candidate. */
export function servedLast(
  candidates: readonly Candidate[],
  ids: ReadonlySet<string>,
): string | undefined {
  return candidates.findLast(({ taskId }) => ids.has(taskId))?.tenant;
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
  for (let reads = 0; reads < maxReads && pairs.size < maxPairs; reads++) {
    const page = completePage(await database.read(limitedPairs(names, from, count)), count);
    for (const pair of page.pairs) pairs.set(JSON.stringify(pair), pair);
    if (from === "") few = page.next === undefined;
    if (few) break;
    // Wrap around at the end, and stop where the round began.
    if (page.next === undefined) wrapped = true;
    from = page.next ?? "";
    if (wrapped && byBytes(from, round.after) >= 0) break;
  }
  const found = [...pairs.values()].slice(0, maxPairs);
  return { pairs: found, round: { after: few ? round.after : from, few } };
}

/**
 * The complete part of one page. If a name has more tenants than were read, later tenants of other
 * names are left for the next page. Otherwise those would always come first.
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
 * One task of each tenant, then the second of each, and so on, starting with the tenant after the
 * one served last. Within a tenant by priority, then age.
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

function toCandidate(row: Row, limitOf: LimitOf): Candidate {
  // Null if none is stored, 0 if it was set with `limits`, which counts more than the code.
  const stored = row["stored_limit"] === null ? undefined : Number(row["stored_limit"]);
  const scopeLimit = limitOf(row["name"]) ?? (stored || defaultKeyLimit);
  return {
    taskId: row["task_id"],
    tenant: row["tenant"],
    scope: row["concurrency_key"],
    scopeLimit,
    isStored: stored === 0 || stored === scopeLimit,
  };
}

function byAge(one: Row, other: Row): number {
  const priorities = Number(other["priority"]) - Number(one["priority"]);
  const ages = Number(one["created_at"]) - Number(other["created_at"]);
  return priorities || ages || byBytes(one["task_id"], other["task_id"]);
}

// The databases' byte order, which differs from JavaScript's string order.
function byBytes(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}

/** SQLite has no booleans. */
function isTrue(value: unknown): boolean {
  return value === true || Number(value) === 1;
}
