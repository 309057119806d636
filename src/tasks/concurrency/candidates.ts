import { between, type Random } from "../../base/random.ts";
import type { Database, Row } from "../../store/database.ts";
import { atMost } from "../claim/capacity.ts";
import type { ClaimCall, FlowVersions, NamesTogether } from "../sql/claim.ts";
import {
  type Candidate,
  candidatesOf,
  type Pair,
  pairsAtGate,
  passGates,
} from "../sql/concurrency.ts";

/** How many of a key run at once where nothing says otherwise. */
export const usualKeyLimit = 1;

/** How the going round the tenants stands. */
export type Round = {
  /** The tenant that was served last. */
  readonly after: string;
  /** Whether all that have something ready fit into one look. */
  readonly few: boolean;
};

export const firstRound: Round = { after: "", few: true };

type Tries = {
  readonly candidates: readonly Candidate[];
  /** How the round stands if none of them is served. */
  readonly round: Round;
};

type TriesOptions = {
  names: readonly string[];
  /** Those of the names that are flows: what only a later version may claim isn't tried. */
  flows?: FlowVersions | undefined;
  round: Round;
  /** Names of which no more than so many are to be claimed. */
  most?: ReadonlyMap<string, number> | undefined;
  /** Names of which no more than so many are to be claimed together. */
  together?: readonly NamesTogether[] | undefined;
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
const pairsMost = 64;
const looksMost = 4;
// A claim holds the scopes of all that it tries, and others wait for those.
const triesMost = 400;

/** Looks for what to try: the tenants that have something ready and room, in turn, and their first tasks. */
export async function readTries(database: Database, options: TriesOptions): Promise<Tries> {
  const { names, flows, limit, fromPriority } = options;
  const { pairs, round } = await readPairs(database, names, options.round);
  if (pairs.length === 0) return { candidates: [], round };
  const tenants = new Set(pairs.map(({ tenant }) => tenant)).size;
  const wanted = options.wide === true ? triesMost : Math.min(triesMost, limit * 2);
  const count = Math.ceil(wanted / tenants);
  const rows = await database.read(candidatesOf(pairs, { count, fromPriority, flows }));
  const held = new Set(options.held);
  const free = rows.filter((row) => !held.has(row["task_id"] as string));
  const turns = takeTurns(free, options.round.after);
  const inTurn = atMost(turns, options.most, options.together).slice(0, triesMost);
  return { candidates: inTurn.map((row) => toCandidate(row, options.limitOf)), round };
}

async function readPairs(
  database: Database,
  names: readonly string[],
  round: Round,
): Promise<{ pairs: Pair[]; round: Round }> {
  const count = Math.max(2, Math.floor(pairsMost / names.length));
  const pairs = new Map<string, Pair>();
  let { few } = round;
  let from = few ? "" : round.after;
  let wrapped = few;
  for (let looks = 0; looks < looksMost && pairs.size < pairsMost; looks++) {
    const page = pageOf(await database.read(pairsAtGate(names, from, count)), count);
    for (const pair of page.pairs) pairs.set(JSON.stringify(pair), pair);
    if (from === "") few = page.next === undefined;
    if (few) break;
    // From the last on to the first again, and no further than where it began.
    if (page.next === undefined) wrapped = true;
    from = page.next ?? "";
    if (wrapped && byBytes(from, round.after) >= 0) break;
  }
  const found = [...pairs.values()].slice(0, pairsMost);
  return { pairs: found, round: { after: few ? round.after : from, few } };
}

/**
 * What one look has found, as far as it is complete: where a name has more tenants than were asked for,
 * those of other names that come after are left for the next look, or they would always come first.
 */
function pageOf(rows: readonly Row[], count: number): { pairs: Pair[]; next: string | undefined } {
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
    .map((row): Pair => ({ name: row["name"], tenant: row["tenant"] }));
  return { pairs, next };
}

/**
 * One task of each tenant, then the second of each, and so on, beginning with the tenant after the one
 * that was served last. Within a tenant by priority, then age.
 */
function takeTurns<Each extends Row>(rows: readonly Each[], after: string): Each[] {
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
  const usual = stored > 0 ? stored : usualKeyLimit;
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
type GatePass = {
  readonly statements: ReturnType<typeof passGates>["statements"];
  /** Takes its answers, and remembers whose turn is next. */
  learn(tables: readonly Row[][]): Passed;
};

type Passed = {
  readonly rows: readonly Row[];
  readonly ids: ReadonlySet<string>;
  /** Whether anything went through the gates or was set aside, so that others may be in front now. */
  readonly moved: boolean;
};

type GateTurnsParts = {
  database: Database;
  random: Random;
  limitOf?: LimitOf;
};

const lowest = -100;
const highest = 100;
// Every sixteenth look begins anywhere in the order of priorities, so that low ones move too.
const anywhereEvery = 16;
const marksKept = 16;

/** Decides what a claim tries behind the gates, and how much of it is left for what is behind none. */
export function createGateTurns(parts: GateTurnsParts) {
  const { database, random, limitOf = () => undefined } = parts;
  let round = firstRound;
  let wide = false;
  let plainWaits = false;
  let looks = 0;
  /** Tasks that must run alone and were marked for this pod. */
  const marked = new Map<string, Row>();

  const passOf = (call: ClaimCall, candidates: readonly Candidate[], alone: boolean): GatePass => {
    const { statements, claimedAt, blockedAt } = passGates(call, candidates, { alone });
    return {
      statements,
      learn(tables) {
        const rows = tables[claimedAt]!;
        const blocked = blockedAt === undefined ? 0 : tables[blockedAt]!.length;
        const ids = new Set(rows.map((row) => row["task_id"] as string));
        const after = servedLast(candidates, ids);
        if (after !== undefined && !alone) round = { ...round, after };
        wide = blocked > 0;
        return { rows, ids, moved: rows.length + blocked > 0 };
      },
    };
  };

  return {
    /** What is ready behind the gates, as part of a claim; undefined where there is nothing to try. */
    async pass(call: ClaimCall): Promise<GatePass | undefined> {
      looks++;
      // Where others wait behind no gate, half of what this pod has free is theirs.
      const turn = looks % 2;
      const most = plainWaits ? Math.floor((call.limit + turn) / 2) : call.limit;
      if (most === 0) return undefined;
      const anywhere = looks % anywhereEvery === 0;
      const tries = await readTries(database, {
        names: call.names,
        flows: call.flows,
        most: call.most,
        together: call.together,
        held: call.held ?? [],
        round,
        limit: most,
        fromPriority: anywhere ? between(random, lowest, highest) : highest,
        limitOf,
        wide,
      });
      ({ round } = tries);
      if (tries.candidates.length === 0) return undefined;
      return passOf({ ...call, limit: most }, tries.candidates, false);
    },
    /** The task that this pod has emptied itself for, if that is behind a gate. */
    passAlone(call: ClaimCall, taskId: string): GatePass | undefined {
      const row = marked.get(taskId);
      if (row === undefined || !call.names.includes(row["name"])) return undefined;
      const { tenant, concurrency_key: group } = row;
      const groupLimit = limitOf(row["name"]) ?? usualKeyLimit;
      return passOf(call, [{ taskId, tenant, group, groupLimit }], true);
    },
    /** Remembers the gate of a task that was marked for this pod. */
    meant(row: Row | undefined): void {
      if (row === undefined || Number(row["limited"]) !== 1) return;
      if (marked.size >= marksKept) marked.clear();
      marked.set(row["task_id"], row);
    },
    /** Whether there is a backlog behind no gate. */
    plainCame(full: boolean): void {
      plainWaits = full;
    },
  };
}
