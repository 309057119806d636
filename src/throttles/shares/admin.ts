import { FlotillaError, hasCode } from "../../base/errors.ts";
import { checkNumber, checkOptions } from "../../base/options.ts";
import { fitPage } from "../../base/page.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import { isStorable } from "../declaration.ts";
import type { ControllerSettings } from "../settings.ts";
import { type ThrottleStats, toThrottleStats } from "./fleet-learning.ts";
import {
  type CallConstraints,
  getReports,
  getThrottles,
  listThrottles,
  pinBound,
  type ThrottleId,
  throttleMapKey,
  type ShareEntries,
  toConstraints,
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
      const after = cursor === undefined ? undefined : idOfCursor(cursor);
      const found = await readThrottles(database, { limit: limit + 1, ...(after && { after }) });
      const page = fitPage(found.slice(0, limit), found.length > limit);
      return { throttles: page.items, next: page.hasMore ? cursorOf(page.items.at(-1)!) : null };
    },
    get: async (name, options) => readThrottle(database, checkedThrottleId(name, options)),
    async pin(name, limit, options) {
      checkNumber("limit", limit, pinRange);
      const throttleId = checkedThrottleId(name, options);
      return (await pin(database, throttleId, limit)) ?? missing(throttleId);
    },
    async unpin(name, options) {
      const throttleId = checkedThrottleId(name, options);
      return (await unpin(database, throttleId)) ?? missing(throttleId);
    },
  };
}

function checkedThrottleId(name: string, options: ThrottleKey = {}): ThrottleId {
  checkOptions("throttle", options, ["key"]);
  const { key = "" } = options;
  if (isText(name) && isText(key)) return { name, key };
  throw new FlotillaError(
    "invalid_option",
    "the name and the key of a throttle must be texts that a database can store",
  );
}

// Names and keys may hold anything, so none of them can stand between the two.
function cursorOf({ name, key }: ThrottleId): string {
  return Buffer.from(JSON.stringify([name, key])).toString("base64url");
}

function idOfCursor(cursor: string): ThrottleId {
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
function missing({ name, key }: ThrottleId): never {
  const label = JSON.stringify(name.slice(0, 80));
  const of = key === "" ? "" : ` with the key ${JSON.stringify(key.slice(0, 80))}`;
  throw new FlotillaError("not_found", `no pod has used a throttle ${label}${of} yet`);
}

/** One throttle and key as the whole fleet sees it. */
export type ThrottleView = ThrottleId & {
  /** How many calls all pods may have in flight at once. */
  readonly bound: number;
  readonly epoch: number;
  /** What somebody has set it to by hand, and when that was last done or undone. */
  readonly pinned?: number;
  readonly pinnedAtMs?: number;
  readonly settings: ControllerSettings;
  readonly breaker: CallConstraints["breaker"];
  readonly holdMs: number;
  readonly refillPerS?: number;
  readonly inFlight: number;
  /** Calls and tasks that wait, as each pod counts them: a task that two pods could have counts twice. */
  readonly waiting: number;
  /** The calls among them, each of which waits on one pod. */
  readonly callsWaiting: number;
  /** How calls have ended since the throttle is known. */
  readonly outcomes: ThrottleStats["outcomes"];
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
  readonly after?: ThrottleId;
  readonly limit?: number;
  /** Only the keys of this one. */
  readonly name?: string;
};

const maxPage = 1_000;
// Pods that have work report every second.
const reportedWithinMs = 10_000;

/** What is known of throttles, in the order of their names and keys. */
export async function readThrottles(
  database: Database,
  { after = { name: "", key: "" }, limit = maxPage, name }: ReadOptions = {},
): Promise<ThrottleView[]> {
  const rows = await database.read(listThrottles(after, limit, name));
  return withReports(database, rows);
}

export async function readThrottle(
  database: Database,
  throttleId: ThrottleId,
): Promise<ThrottleView | undefined> {
  const [found] = await withReports(database, await database.read(getThrottles([throttleId])));
  return found;
}

async function withReports(database: Database, rows: readonly Row[]): Promise<ThrottleView[]> {
  if (rows.length === 0) return [];
  const ids = rows.map((row) => ({ name: row["name"] as string, key: row["key"] as string }));
  const reports = new Map<string, Row[]>();
  for (const report of await database.read(getReports(ids))) {
    const at = throttleMapKey(report["name"] as string, report["key"] as string);
    reports.set(at, [...(reports.get(at) ?? []), report]);
  }
  return rows.map((row) => {
    const at = throttleMapKey(row["name"] as string, row["key"] as string);
    return toView(row, reports.get(at) ?? []);
  });
}

function toView(row: Row, reports: readonly Row[]): ThrottleView {
  const { outcomes, ...latencies } = toThrottleStats(row["stats"] as string);
  const pods = podsOf(JSON.parse(row["shares"] as string) as ShareEntries, reports);
  // What a pod said that is gone by now isn't in flight any more.
  const reporting = pods.filter(({ reportedMs = Infinity }) => reportedMs < reportedWithinMs);
  const sum = (of: (pod: PodView) => number) => reporting.reduce((all, pod) => all + of(pod), 0);
  return {
    name: row["name"] as string,
    key: row["key"] as string,
    bound: Number(row["bound"]),
    epoch: Number(row["epoch"]),
    ...(row["pinned"] !== null && { pinned: Number(row["pinned"]) }),
    ...(row["pinned_at"] !== null && { pinnedAtMs: Number(row["pinned_at"]) }),
    settings: JSON.parse(row["settings"] as string) as ControllerSettings,
    ...toConstraints(row["gate"] as string),
    inFlight: sum(({ inFlight }) => inFlight),
    waiting: sum(({ waiting }) => waiting),
    callsWaiting: sum(({ callsWaiting }) => callsWaiting),
    outcomes,
    ...latencies,
    pods,
    lastUpdateMs: Number(row["last_update"]),
  };
}

function podsOf(shares: ShareEntries, reports: readonly Row[]): PodView[] {
  const byPod = new Map(reports.map((report) => [report["pod_id"] as string, report]));
  return [...new Set([...Object.keys(shares), ...byPod.keys()])].sort().map((podId) => {
    const report = byPod.get(podId);
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
  throttleId: ThrottleId,
  bound: number,
): Promise<ThrottleView | undefined> {
  checkNumber("pin", bound, { min: 0, max: 100_000 });
  return changeManually(database, throttleId, {
    isDone: (row) => row["pinned"] !== null && Number(row["pinned"]) === bound,
    statement: (rev) => pinBound(throttleId, rev, bound),
  });
}

/** Lets the bound be learned again, from what was known before it was pinned. */
export async function unpin(
  database: Database,
  throttleId: ThrottleId,
): Promise<ThrottleView | undefined> {
  return changeManually(database, throttleId, {
    isDone: (row) => row["pinned"] === null,
    statement: (rev) => unpinBound(throttleId, rev),
  });
}

type ManualChange = {
  readonly isDone: (row: Row) => boolean;
  readonly statement: (rev: number) => Statement;
};

const maxTries = 50;

/** Whoever looks again after an answer was lost finds out, since a write that came late fails. */
async function changeManually(
  database: Database,
  throttleId: ThrottleId,
  { isDone, statement }: ManualChange,
): Promise<ThrottleView | undefined> {
  for (let attempt = 1; attempt <= maxTries; attempt++) {
    const [row] = await database.read(getThrottles([throttleId]));
    if (!row) return undefined;
    if (isDone(row)) return readThrottle(database, throttleId);
    try {
      await database.write([statement(Number(row["rev"]))]);
    } catch (error) {
      if (!hasCode(error, "unknown_outcome", "store_busy")) throw error;
    }
  }
  throw new FlotillaError(
    "store_busy",
    `the throttle "${throttleId.name}" was changed by others all the time: try again`,
  );
}
