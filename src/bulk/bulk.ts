import type { Row } from "../store/database.ts";
import { type TaskFilter, taskFilterNames } from "../tasks/inspect/filter.ts";
import type { TaskStatus } from "../tasks/rows.ts";

/**
 * A bulk is one act on all tasks and runs that match a filter. Its state is a row that is changed only by a
 * writer that has read its last revision, so any leader can continue it, and two leaders do what one would.
 *
 *   running ── all were gone through ──▶ done
 *      └────── an operator stops it ───▶ stopped
 */
export type BulkState = "running" | "done" | "stopped";

export const bulkActions = ["cancel", "retry", "delete", "signal", "resume"] as const;

export type BulkAction = (typeof bulkActions)[number];

/** What to do, and to which tasks and runs. */
export type BulkRequest = {
  readonly action: BulkAction;
  readonly filter: TaskFilter;
  /** Of `retry`: forgets stored steps, so that all of them run again. Default false. */
  readonly fromStart?: boolean;
  /** Of `signal`: its name, and what it carries. */
  readonly signal?: string;
  readonly payload?: unknown;
  /** Of `resume`: hands runs that a later version of their flow has advanced to this version. */
  readonly as?: number;
  /** For the audit: at most 500 characters. */
  readonly reason?: string;
};

export type Bulk = {
  readonly bulkId: string;
  readonly action: BulkAction;
  readonly filter: TaskFilter;
  readonly fromStart: boolean;
  readonly signal: string | null;
  readonly as: number | null;
  readonly state: BulkState;
  /** How many matched when it began. There may be more if it isn't exact. */
  readonly matched: number;
  readonly isExact: boolean;
  readonly done: number;
  /** Not as they were seen when it came to them. */
  readonly skipped: number;
  /** As they were seen, but the act wasn't possible. */
  readonly refused: number;
  /** The last id that it has gone through; null before the first. */
  readonly lastTaskId: string | null;
  /** The actor, as the audit names it; null if a handler began it. */
  readonly createdBy: string | null;
  readonly reason: string | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

/** A bulk's row, with what only the leader needs. */
export type StoredBulk = Bulk & {
  readonly revision: number;
  readonly untilId: string;
  /** JSON text. */
  readonly payload: string | null;
};

/** A request that was checked. */
export type CheckedBulk = {
  readonly action: BulkAction;
  readonly filter: TaskFilter;
  readonly options: BulkOptions;
  /** JSON text of what a signal carries. */
  readonly payload: string | null;
  readonly reason: string | null;
};

/** What is stored of a request besides its filter. */
export type BulkOptions = {
  readonly fromStart?: true;
  readonly signal?: string;
  readonly as?: number;
};

/** A task or run as it was read. */
export type SeenTask = {
  readonly taskId: string;
  readonly status: string;
  readonly token: number;
};

/** The states that an action is for. */
export const statusesOf: Readonly<Record<BulkAction, readonly TaskStatus[]>> = {
  cancel: ["pending", "claimed"],
  retry: ["failed", "cancelled"],
  delete: ["completed", "failed", "cancelled"],
  signal: ["pending", "claimed"],
  resume: ["pending"],
};

// What leaders of the release before know of a filter.
const namesBefore: readonly string[] = [
  "name",
  "status",
  "tenant",
  "group",
  "at",
  "setAside",
  "from",
  "to",
];
// They leave a bulk of such a group to a leader of a later release.
const laterGroup = "g999999-0000000000000000";

/**
 * A filter as it is stored. A leader of the release before acts on all that match what it knows of one,
 * which would be too many: it must not take a filter with anything else for its own.
 */
export function encodeFilter(filter: TaskFilter): string {
  if (Object.keys(filter).every((name) => namesBefore.includes(name)))
    return JSON.stringify(filter);
  const { tenant } = filter;
  const shown = { ...(tenant !== undefined && { tenant }), group: laterGroup };
  return JSON.stringify({ ...shown, whole: filter });
}

function filterIn(text: string): TaskFilter {
  const { whole, ...filter } = JSON.parse(text) as TaskFilter & { whole?: TaskFilter };
  return whole ?? filter;
}

/** Whether this release knows all of a filter. One of a later release may say more. */
export function isKnownFilter(filter: TaskFilter): boolean {
  return Object.keys(filter).every((name) => (taskFilterNames as readonly string[]).includes(name));
}

export function hasBulkEnded({ state }: Pick<Bulk, "state">): boolean {
  return state !== "running";
}

export function toStoredBulk(row: Row): StoredBulk {
  const options = JSON.parse(row["options"]) as BulkOptions;
  return {
    bulkId: row["bulk_id"],
    action: row["action"],
    filter: filterIn(row["filter"]),
    fromStart: options.fromStart === true,
    signal: options.signal ?? null,
    as: options.as ?? null,
    state: row["state"],
    matched: Number(row["matched"]),
    isExact: Number(row["is_exact"]) === 1,
    done: Number(row["done"]),
    skipped: Number(row["skipped"]),
    refused: Number(row["refused"]),
    lastTaskId: row["cursor_id"] === "" ? null : row["cursor_id"],
    createdBy: row["created_by"],
    reason: row["reason"],
    createdAtMs: Number(row["created_at"]),
    updatedAtMs: Number(row["last_update"]),
    revision: Number(row["revision"]),
    untilId: row["until_id"],
    payload: row["payload"],
  };
}

/** A bulk in its public form. */
export function toBulk(row: Row): Bulk {
  const { revision: _, untilId: __, payload: ___, ...bulk } = toStoredBulk(row);
  return bulk;
}
