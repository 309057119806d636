import {
  type Act,
  type ActAbout,
  type ActParts,
  type ActWrite,
  beginAct,
  reportLost,
  writeAct,
} from "../../audit/act.ts";
import { actorName, currentActor } from "../../audit/actor.ts";
import { contendedCodes, FlotillaError, hasCode } from "../../base/errors.ts";
import { checkNumber, checkOptions, isStorable } from "../../base/options.ts";
import { fitPage } from "../../base/page.ts";
import type { Database, Row } from "../../store/database.ts";
import type { Statement } from "../../store/sql.ts";
import type { LearnedCause } from "../learning/limit-controller.ts";
import type { ControllerSettings } from "../settings.ts";
import { type ThrottleStats, toThrottleStats } from "./fleet-learning.ts";
import {
  type CallConstraints,
  entryOfPin,
  getReports,
  getThrottles,
  listEvents,
  listThrottles,
  noteChange,
  pinBound,
  type ThrottleId,
  throttleMapKey,
  type ShareEntries,
  summarizeThrottles,
  toConstraints,
  unpinBound,
} from "./sql.ts";

/** One throttle and key in the whole fleet. */
export type ThrottleView = ThrottleId & {
  /** How many calls all pods may have in flight at once. */
  readonly bound: number;
  readonly epoch: number;
  /** The limit that was set by hand, and when it was last pinned or unpinned. */
  readonly pinned?: number;
  readonly pinnedAtMs?: number;
  readonly settings: ControllerSettings;
  readonly breaker: CallConstraints["breaker"];
  readonly holdMs: number;
  readonly refillPerS?: number;
  readonly inFlight: number;
  /** Waiting calls and tasks, summed over pods: a task that two pods could claim counts twice. */
  readonly waiting: number;
  /** The calls among them; each waits on one pod. */
  readonly callsWaiting: number;
  /** How calls have ended since the throttle's first use. */
  readonly outcomes: ThrottleStats["outcomes"];
  readonly p95Ms?: number;
  readonly firstTokenP95Ms?: number;
  /** Average duration and cost (in the bucket's unit) of successful calls, weighted towards the latest. */
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
  /** The age of its last report, by the store's clock; absent where there is none. */
  readonly reportedMs?: number;
};

export type ThrottlePage = { readonly throttles: ThrottleView[]; readonly next: string | null };

export type ThrottleListOptions = {
  /** The `next` of the last page. */
  cursor?: string;
  /** 1 to 1,000. Default 100. */
  limit?: number;
};

export type ThrottleKey = {
  /** The key, where the throttle is keyed. */
  key?: string;
};

/** Why a bound has changed. */
export type BoundCause = LearnedCause | "first_use" | "pinned";

/** A change of a throttle's bound, or of its breaker. */
export type BoundEvent = {
  /** Rises with every change of this throttle and key. */
  readonly seq: number;
  readonly atMs: number;
  readonly cause: BoundCause;
  /** Null for the first. */
  readonly before: number | null;
  readonly bound: number;
  readonly epoch: number;
  readonly breaker: CallConstraints["breaker"];
  /** Who pinned or unpinned it, as the audit names actors; null for what was learned. */
  readonly by: string | null;
};

export type BoundEventPage = {
  readonly events: BoundEvent[];
  readonly next: string | null;
};

export type BoundEventOptions = ThrottleKey & {
  /** The `next` of the page before. */
  cursor?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
};

/** Reads the throttles of the fleet, and pins their limits. */
export type ThrottlesClient = {
  /** A page, ordered by name and key. */
  list(options?: ThrottleListOptions): Promise<ThrottlePage>;
  get(name: string, options?: ThrottleKey): Promise<ThrottleView | undefined>;
  /** How the bound of a throttle has changed and why, newest first. The last thousand are kept. */
  events(name: string, options?: BoundEventOptions): Promise<BoundEventPage>;
  /** Sets the limit of all pods by hand. Nothing is learned until it is unpinned. */
  pin(name: string, limit: number, options?: ThrottleKey): Promise<ThrottleView>;
  /** Lets the limit be learned again, from what was known before it was pinned. */
  unpin(name: string, options?: ThrottleKey): Promise<ThrottleView>;
};

const maxPage = 1_000;
// Pods with demand report every second.
const reportedWithinMs = 10_000;

const pinRange = { min: 0, max: 100_000 };

const maxTries = 50;
// The next try begins with a new read.
const once = { limitMs: 0 };

/** Creates the client for throttles, for pods and for programs without one. */
export function createThrottlesClient(parts: ActParts): ThrottlesClient {
  const { database } = parts;
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
    async events(name, { cursor, limit = 50, ...key } = {}) {
      const throttleId = checkedThrottleId(name, key);
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const before = cursor === undefined ? undefined : seqOfCursor(cursor);
      const rows = await database.read(listEvents(throttleId, { before, count: limit + 1 }));
      const events = rows.slice(0, limit).map(toEvent);
      return { events, next: rows.length > limit ? String(events.at(-1)!.seq) : null };
    },
    async pin(name, limit, options) {
      checkNumber("limit", limit, pinRange);
      const throttleId = checkedThrottleId(name, options);
      return (await pin(parts, throttleId, limit)) ?? missing(throttleId);
    },
    async unpin(name, options) {
      const throttleId = checkedThrottleId(name, options);
      return (await unpin(parts, throttleId)) ?? missing(throttleId);
    },
  };
}

function checkedThrottleId(name: string, options: ThrottleKey = {}): ThrottleId {
  checkOptions("throttle", options, ["key"]);
  const { key = "" } = options;
  if (isText(name) && isText(key)) return { name, key };
  throw new FlotillaError(
    "invalid_option",
    "the name and the key of a throttle must be strings that a database can store (no NUL, no lone surrogates)",
  );
}

/**
 * The longest cursor of a list of throttles: a name and a key of 200 characters each, of which JSON takes
 * six for one that it escapes, in base64.
 */
const maxCursorChars = 3_300;

// Names and keys may contain any character, so there is no separator to join them by.
function cursorOf({ name, key }: ThrottleId): string {
  return Buffer.from(JSON.stringify([name, key])).toString("base64url");
}

function idOfCursor(cursor: string): ThrottleId {
  const isShort = typeof cursor === "string" && cursor.length <= maxCursorChars;
  try {
    const text = isShort ? Buffer.from(cursor, "base64url").toString() : "";
    const [name, key] = JSON.parse(text) as unknown[];
    if (isText(name) && isText(key)) return { name, key };
  } catch {
    // Refused below.
  }
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}

function seqOfCursor(cursor: string): number {
  if (/^\d{1,15}$/.test(cursor)) return Number(cursor);
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}

function toEvent(row: Row): BoundEvent {
  return {
    seq: Number(row["seq"]),
    atMs: Number(row["at"]),
    cause: row["cause"],
    before: row["bound_before"] === null ? null : Number(row["bound_before"]),
    bound: Number(row["bound"]),
    epoch: Number(row["epoch"]),
    breaker: row["breaker"],
    by: row["actor"],
  };
}

function isText(value: unknown): value is string {
  return typeof value === "string" && isStorable(value);
}

/** The store has a row from the throttle's first use on. */
function missing({ name, key }: ThrottleId): never {
  const label = JSON.stringify(name.slice(0, 80));
  const of = key === "" ? "" : ` with the key ${JSON.stringify(key.slice(0, 80))}`;
  throw new FlotillaError("not_found", `no pod has used a throttle ${label}${of} yet`);
}

type ReadOptions = {
  readonly after?: ThrottleId;
  readonly limit?: number;
  /** Only this throttle's keys. */
  readonly name?: string;
};

/** Throttles with their pods, ordered by name and key. */
export async function readThrottles(
  database: Database,
  { after = { name: "", key: "" }, limit = maxPage, name }: ReadOptions = {},
): Promise<ThrottleView[]> {
  const rows = await database.read(listThrottles(after, limit, name));
  return withReports(database, rows);
}

/** A throttle and key as far as pages about all of them show it. */
export type ThrottleSummary = Pick<
  ThrottleView,
  | "name"
  | "key"
  | "bound"
  | "epoch"
  | "pinned"
  | "breaker"
  | "inFlight"
  | "waiting"
  | "outcomes"
  | "p95Ms"
  | "lastUpdateMs"
>;

/** The first throttles, ordered by name and key. The store adds up the reports of pods. */
export async function readThrottleSummaries(
  database: Pick<Database, "read">,
  { limit }: { limit: number },
): Promise<ThrottleSummary[]> {
  const found = await database.read(summarizeThrottles(limit, reportedWithinMs));
  return found.map((row) => {
    const { outcomes, p95Ms } = toThrottleStats(row["stats"] as string);
    return {
      name: row["name"] as string,
      key: row["key"] as string,
      bound: Number(row["bound"]),
      epoch: Number(row["epoch"]),
      ...(row["pinned"] !== null && { pinned: Number(row["pinned"]) }),
      breaker: toConstraints(row["gate"] as string).breaker,
      inFlight: Number(row["in_flight"]),
      waiting: Number(row["waiting"]),
      outcomes,
      ...(p95Ms !== undefined && { p95Ms }),
      lastUpdateMs: Number(row["last_update"]),
    };
  });
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
  // The last report of a pod that is gone says nothing about the present.
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

/** Pins the bound. Resolves to undefined where there is no such throttle. */
export async function pin(
  parts: ActParts,
  throttleId: ThrottleId,
  bound: number,
): Promise<ThrottleView | undefined> {
  checkNumber("pin", bound, { min: 0, max: 100_000 });
  const act = await beginAct(parts, { action: "throttles.pin", ...aboutThrottle(throttleId) });
  return changeManually(parts, act, throttleId, {
    pinned: bound,
    statement: (rev) => pinBound(throttleId, rev, bound),
  });
}

/** Lets the bound be learned again, from what was known before it was pinned. */
export async function unpin(
  parts: ActParts,
  throttleId: ThrottleId,
): Promise<ThrottleView | undefined> {
  const act = await beginAct(parts, { action: "throttles.unpin", ...aboutThrottle(throttleId) });
  return changeManually(parts, act, throttleId, {
    pinned: null,
    statement: (rev) => unpinBound(throttleId, rev),
  });
}

/** What the audit says of it. Both may have slashes, so that the subject alone doesn't tell the key. */
function aboutThrottle({ name, key }: ThrottleId): Pick<ActAbout, "subject" | "filter"> {
  return key === "" ? { subject: name } : { subject: `${name}/${key}`, filter: { name, key } };
}

type ManualChange = {
  readonly pinned: number | null;
  readonly statement: (rev: number) => Statement;
};

/** Reads and writes until the change is in the row. A late write fails, because the revision has moved. */
async function changeManually(
  parts: ActParts,
  act: Act,
  throttleId: ThrottleId,
  { pinned, statement }: ManualChange,
): Promise<ThrottleView | undefined> {
  const { database } = parts;
  let hasFailed = false;
  for (let attempt = 1; attempt <= maxTries; attempt++) {
    const [row] = await database.read(getThrottles([throttleId]));
    if (!row) return undefined;
    const before = row["pinned"] === null ? null : Number(row["pinned"]);
    if (before === pinned || act.stored) {
      if (hasFailed) await reportLost(act);
      return readThrottle(database, throttleId);
    }
    const rev = Number(row["rev"]);
    const states = {
      before: JSON.stringify({ pinned: before }),
      after: JSON.stringify({ pinned }),
    };
    const actor = currentActor();
    const change = {
      cause: pinned === null ? "unpinned" : "pinned",
      // A limit that is set by hand knows no breaker.
      breaker: pinned === null ? toConstraints(row["gate"] as string).breaker : "closed",
      ...(pinned !== null && { bound: pinned }),
      ...(actor && { actor: actorName(actor) }),
    } as const;
    try {
      const statements: ActWrite["statements"] = (_, entry) => [
        ...entryOfPin(throttleId, rev, states, entry),
        ...noteChange(throttleId, rev, change),
        statement(rev),
      ];
      const { stored } = await writeAct(parts, act, { statements, hasAnswer: false }, once);
      if (stored) return readThrottle(database, throttleId);
    } catch (error) {
      if (!hasCode(error, ...contendedCodes)) throw error;
      hasFailed = true;
    }
  }
  throw new FlotillaError(
    "store_busy",
    `the throttle "${throttleId.name}" was changed by others in all ${maxTries} tries: try again`,
  );
}
