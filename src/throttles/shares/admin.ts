import { FlotillaError, hasCode } from "../../base/errors.ts";
import { checkNumber, checkOptions } from "../../base/options.ts";
import { fitPage } from "../../base/page.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { isStorable } from "../declaration.ts";
import type { Settings } from "../settings.ts";
import { type Stats, toStats } from "./fleet-learning.ts";
import {
  type Gate,
  getReports,
  getThrottles,
  listThrottles,
  pinBound,
  type Place,
  placeKey,
  type Shares,
  toGate,
  unpinBound,
} from "./sql.ts";

export type ThrottlePage = { readonly throttles: ThrottleView[]; readonly next: string | null };

export type ThrottleListOptions = {
  /** The `next` of the page before. */
  cursor?: string;
  /** 1 to 1,000. Default 100. */
  limit?: number;
};

export type ThrottleKey = {
  /** Which of its limits is meant, where it is keyed. */
  key?: string;
};

/** What the fleet knows of its throttles, and how it is set by hand. */
export type ThrottlesClient = {
  /** A page, in the order of their names and keys. */
  list(options?: ThrottleListOptions): Promise<ThrottlePage>;
  get(name: string, options?: ThrottleKey): Promise<ThrottleView | undefined>;
  /** Holds the limit of all pods where somebody says. Nothing is learned until it is unpinned. */
  pin(name: string, limit: number, options?: ThrottleKey): Promise<ThrottleView>;
  /** Lets the limit be learned again, from what was known before it was pinned. */
  unpin(name: string, options?: ThrottleKey): Promise<ThrottleView>;
};

const pinRange = { min: 0, max: 100_000 };

export function createThrottlesClient({ database }: { database: Database }): ThrottlesClient {
  return {
    async list(options = {}) {
      checkOptions("throttles.list", options, ["cursor", "limit"]);
      const { cursor, limit = 100 } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const after = cursor === undefined ? undefined : placeOf(cursor);
      const found = await readThrottles(database, { limit: limit + 1, ...(after && { after }) });
      const page = fitPage(found.slice(0, limit), found.length > limit);
      return { throttles: page.items, next: page.hasMore ? cursorOf(page.items.at(-1)!) : null };
    },
    get: async (name, options) => readThrottle(database, placeFrom(name, options)),
    async pin(name, limit, options) {
      checkNumber("limit", limit, pinRange);
      const place = placeFrom(name, options);
      return (await pin(database, place, limit)) ?? missing(place);
    },
    async unpin(name, options) {
      const place = placeFrom(name, options);
      return (await unpin(database, place)) ?? missing(place);
    },
  };
}

function placeFrom(name: string, options: ThrottleKey = {}): Place {
  checkOptions("throttle", options, ["key"]);
  const { key = "" } = options;
  if (isText(name) && isText(key)) return { name, key };
  throw new FlotillaError(
    "invalid_option",
    "the name and the key of a throttle must be texts that a database can store",
  );
}

// Names and keys may hold anything, so none of them can stand between the two.
function cursorOf({ name, key }: Place): string {
  return Buffer.from(JSON.stringify([name, key])).toString("base64url");
}

function placeOf(cursor: string): Place {
  try {
    const [name, key] = JSON.parse(Buffer.from(cursor, "base64url").toString()) as unknown[];
    if (isText(name) && isText(key)) return { name, key };
  } catch {
    // Refused below.
  }
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}

function isText(value: unknown): value is string {
  return typeof value === "string" && isStorable(value);
}

/** It is known to the store from its first use on. */
function missing({ name, key }: Place): never {
  const shown = JSON.stringify(name.slice(0, 80));
  const of = key === "" ? "" : ` with the key ${JSON.stringify(key.slice(0, 80))}`;
  throw new FlotillaError("not_found", `no pod has used a throttle ${shown}${of} yet`);
}

/** One throttle and key as the whole fleet sees it. */
export type ThrottleView = Place & {
  /** How many calls all pods may have in flight at once. */
  readonly bound: number;
  readonly epoch: number;
  /** What somebody has set it to by hand, and when that was last done or undone. */
  readonly pinned?: number;
  readonly pinnedAtMs?: number;
  readonly settings: Settings;
  readonly breaker: Gate["breaker"];
  readonly holdMs: number;
  readonly refillPerS?: number;
  readonly inFlight: number;
  /** Calls and tasks that wait, as each pod counts them: a task that two pods could have counts twice. */
  readonly waiting: number;
  /** The calls among them, each of which waits on one pod. */
  readonly callsWaiting: number;
  /** How calls have ended since the throttle is known. */
  readonly outcomes: Stats["outcomes"];
  readonly p95Ms?: number;
  readonly firstTokenP95Ms?: number;
  /** How long successful calls take on average, the latest most of all, and what they cost in the bucket's unit. */
  readonly meanMs?: number;
  readonly meanCost?: number;
  readonly pods: readonly PodView[];
  readonly lastUpdateMs: number;
};

export type PodView = {
  readonly podId: string;
  readonly share: number;
  readonly inFlight: number;
  readonly waiting: number;
  readonly callsWaiting: number;
  /** How long ago it has said so last, by the store's clock; absent where it hasn't lately. */
  readonly reportedMs?: number;
};

type ReadOptions = {
  readonly after?: Place;
  readonly limit?: number;
  /** Only the keys of this one. */
  readonly name?: string;
};

const pageMost = 1_000;
// Pods that have work report every second.
const heardWithinMs = 10_000;

/** What is known of throttles, in the order of their names and keys. */
export async function readThrottles(
  database: Database,
  { after = { name: "", key: "" }, limit = pageMost, name }: ReadOptions = {},
): Promise<ThrottleView[]> {
  const rows = await database.read(listThrottles(after, limit, name));
  return withReports(database, rows);
}

export async function readThrottle(
  database: Database,
  place: Place,
): Promise<ThrottleView | undefined> {
  const [found] = await withReports(database, await database.read(getThrottles([place])));
  return found;
}

async function withReports(database: Database, rows: readonly Row[]): Promise<ThrottleView[]> {
  if (rows.length === 0) return [];
  const places = rows.map((row) => ({ name: row["name"] as string, key: row["key"] as string }));
  const reports = new Map<string, Row[]>();
  for (const report of await database.read(getReports(places))) {
    const at = placeKey(report["name"] as string, report["key"] as string);
    reports.set(at, [...(reports.get(at) ?? []), report]);
  }
  return rows.map((row) => {
    const at = placeKey(row["name"] as string, row["key"] as string);
    return toView(row, reports.get(at) ?? []);
  });
}

function toView(row: Row, reports: readonly Row[]): ThrottleView {
  const { outcomes, ...latencies } = toStats(row["stats"] as string);
  const pods = podsOf(JSON.parse(row["shares"] as string) as Shares, reports);
  // What a pod said that is gone by now isn't in flight any more.
  const heard = pods.filter(({ reportedMs = Infinity }) => reportedMs < heardWithinMs);
  const sum = (of: (pod: PodView) => number) => heard.reduce((all, pod) => all + of(pod), 0);
  return {
    name: row["name"] as string,
    key: row["key"] as string,
    bound: Number(row["bound"]),
    epoch: Number(row["epoch"]),
    ...(row["pinned"] !== null && { pinned: Number(row["pinned"]) }),
    ...(row["pinned_at"] !== null && { pinnedAtMs: Number(row["pinned_at"]) }),
    settings: JSON.parse(row["settings"] as string) as Settings,
    ...toGate(row["gate"] as string),
    inFlight: sum(({ inFlight }) => inFlight),
    waiting: sum(({ waiting }) => waiting),
    callsWaiting: sum(({ callsWaiting }) => callsWaiting),
    outcomes,
    ...latencies,
    pods,
    lastUpdateMs: Number(row["last_update"]),
  };
}

function podsOf(shares: Shares, reports: readonly Row[]): PodView[] {
  const said = new Map(reports.map((report) => [report["pod_id"] as string, report]));
  return [...new Set([...Object.keys(shares), ...said.keys()])].sort().map((podId) => {
    const report = said.get(podId);
    return {
      podId,
      share: shares[podId]?.share ?? 0,
      inFlight: Number(report?.["in_flight"] ?? 0),
      waiting: Number(report?.["waiting"] ?? 0),
      callsWaiting: Number(report?.["calls_waiting"] ?? 0),
      ...(report && { reportedMs: Math.max(0, Number(report["now_at"]) - Number(report["at"])) }),
    };
  });
}

/** Holds the bound where somebody says, from now on. Resolves to undefined where there is no such throttle. */
export async function pin(
  database: Database,
  place: Place,
  bound: number,
): Promise<ThrottleView | undefined> {
  checkNumber("pin", bound, { min: 0, max: 100_000 });
  return changeByHand(database, place, {
    isDone: (row) => row["pinned"] !== null && Number(row["pinned"]) === bound,
    statement: (rev) => pinBound(place, rev, bound),
  });
}

/** Lets the bound be learned again, from what was known before it was pinned. */
export async function unpin(database: Database, place: Place): Promise<ThrottleView | undefined> {
  return changeByHand(database, place, {
    isDone: (row) => row["pinned"] === null,
    statement: (rev) => unpinBound(place, rev),
  });
}

type ByHand = {
  readonly isDone: (row: Row) => boolean;
  readonly statement: (rev: number) => Statement;
};

const triesMost = 50;

/** Whoever looks again after an answer was lost finds out, since a write that came late fails. */
async function changeByHand(
  database: Database,
  place: Place,
  { isDone, statement }: ByHand,
): Promise<ThrottleView | undefined> {
  for (let tries = 1; tries <= triesMost; tries++) {
    const [row] = await database.read(getThrottles([place]));
    if (!row) return undefined;
    if (isDone(row)) return readThrottle(database, place);
    try {
      await database.write([statement(Number(row["rev"]))]);
    } catch (error) {
      if (!hasCode(error, "unknown_outcome", "store_busy")) throw error;
    }
  }
  throw new FlotillaError(
    "store_busy",
    `the throttle "${place.name}" was changed by others all the time: try again`,
  );
}
