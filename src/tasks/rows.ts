import { FlotillaError } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import type { Row } from "../store/database.ts";
import { parked } from "./sql/task-state.ts";
import type { HeldByThrottle } from "./inspect/blocked-by.ts";

/** Why a task failed, as it is stored. */
export type TaskError = {
  readonly code: string;
  readonly message: string;
  readonly stack?: string;
  /** With `dependency_failed`: the task that it has waited for in vain. */
  readonly taskId?: string;
};

/** A task as people see it: one row of `task`. */
export type Task = {
  readonly taskId: string;
  readonly tenant: string;
  readonly name: string;
  readonly priority: number;
  readonly payload: Json;
  readonly key: string | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  readonly runAtMs: number;
  /** The time of its schedule that it was made for; null where no schedule's time has made it. */
  readonly scheduledAtMs: number | null;
  /** Attempts that have failed so far. */
  readonly failures: number;
  /** How often it has asked to be run again later. */
  readonly snoozes: number;
  /** Null where the handler's own number counts. */
  readonly maxAttempts: number | null;
  /** Pods that have died while they ran it. */
  readonly deaths: number;
  readonly claimToken: number;
  readonly progress: Json;
  readonly cancelRequested: boolean;
  /** The limit by key that it counts among, as `limits` knows it; null where there is none. */
  readonly scope: string | null;
  /** The tasks that it waits for, or has waited for, in the order that was given. */
  readonly waitsFor: readonly string[];
  /** Of a run: the highest version of its flow that has advanced it, 0 before any has. Null of a task. */
  readonly flowVersion: number | null;
} & (
  | {
      readonly status: "pending";
      readonly error: TaskError | null;
      /**
       * No pod that is up works on tasks of this name, or of a run in its version or a later one, so it
       * waits until one does.
       */
      readonly noWorker: boolean;
      /** Its name, or everything, is paused, so nobody claims it. */
      readonly paused: boolean;
      /** The limit whose room it waits for; null where none was found to hold it up. */
      readonly blockedBy: string | null;
      /** The throttle whose permits it waits for; null where none is known to hold it up. */
      readonly throttledBy: HeldByThrottle | null;
    }
  | { readonly status: "claimed"; readonly claimedBy: string; readonly error: TaskError | null }
  | { readonly status: "completed"; readonly result: Json }
  | { readonly status: "failed"; readonly error: TaskError }
  | { readonly status: "cancelled"; readonly error: TaskError | null }
);

export type TaskStatus = Task["status"];

export const taskStatuses = ["pending", "claimed", "completed", "failed", "cancelled"] as const;

export function toTask(row: Row, waitsFor: readonly string[] = []): Task {
  const base = {
    taskId: row["task_id"],
    tenant: row["tenant"],
    name: row["name"],
    priority: Number(row["priority"]),
    payload: lenientJson(row["payload"]),
    key: row["unique_key"],
    createdAtMs: Number(row["created_at"]),
    updatedAtMs: Number(row["last_update"]),
    runAtMs: Number(row["run_at"]),
    scheduledAtMs: row["scheduled_at"] === null ? null : Number(row["scheduled_at"]),
    failures: Number(row["retry_count"]),
    snoozes: Number(row["snoozes"]),
    maxAttempts: row["max_attempts"] === null ? null : Number(row["max_attempts"]),
    deaths: Number(row["deaths"]),
    claimToken: Number(row["claim_token"]),
    progress: lenientJson(row["progress"]),
    cancelRequested: Number(row["cancel_requested"]) === 1,
    scope: row["concurrency_key"],
    waitsFor,
    flowVersion: row["flow_version"] === null ? null : Number(row["flow_version"]),
  };
  const error = lenientJson(row["error"]) as TaskError | null;
  const status = row["status"] as TaskStatus;
  switch (status) {
    case "pending":
      return { ...base, status, error, ...blockedState(row) };
    case "cancelled":
      return { ...base, status, error };
    case "claimed":
      return { ...base, status, claimedBy: row["claimed_by"], error };
    case "completed":
      return { ...base, status, result: lenientJson(row["result"]) };
    case "failed":
      return {
        ...base,
        status,
        error: error ?? { code: "internal", message: "no error was stored" },
      };
    default:
      throw new FlotillaError(
        "internal",
        `task ${base.taskId} has the unknown status ${String(status)}`,
      );
  }
}

/** What the row itself says of why a task waits. Who works on it, and what is paused, others know. */
function blockedState(row: Row) {
  // What it is blocked by stays noted when it goes on.
  const blockedBy: string | null =
    Number(row["parked"]) === parked.blocked ? row["blocked_by"] : null;
  return { noWorker: false, paused: false, blockedBy, throttledBy: null };
}

/** A row inserted by hand may hold anything; looking at it must still work. */
export function lenientJson(text: unknown): Json {
  if (typeof text !== "string") return (text ?? null) as Json;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

/** A task that this pod has claimed: what the run needs, and the fences it writes with. */
export type Claim = {
  readonly taskId: string;
  readonly name: string;
  readonly payload: string;
  readonly token: number;
  readonly wake: number;
  readonly failures: number;
  readonly snoozes: number;
  readonly maxAttempts: number | null;
  readonly deaths: number;
  /** Present where it went through a gate: with the scope of its key, if it has one. */
  readonly gate?: { readonly group: string | null } | undefined;
  /** Whether others were waiting for it when it was claimed. */
  readonly hasDependents?: boolean | undefined;
  /** Whether a task that it waits for has failed or was cancelled, so that it mustn't run. */
  readonly doomed?: boolean | undefined;
  /** The time of its schedule that it was made for. */
  readonly scheduledAtMs?: number | undefined;
  /** The trace that it was enqueued in, as it is stored: anything may stand there. */
  readonly trace: string | null;
  /** Present where it may be a run of a flow. */
  readonly run?: ClaimedRun | undefined;
};

/** What the row of a run says besides. */
export type ClaimedRun = {
  /** Null where it is no run. */
  readonly version: number | null;
  readonly cursor: string | null;
  readonly state: string | null;
  readonly intent: string | null;
  readonly waiting: string | null;
  readonly stoppedAt: string | null;
  /** How often it was written by whoever ran it. */
  readonly seq: number;
  readonly cancelRequested: boolean;
  readonly tenant: string;
  readonly createdAtMs: number;
  /** When it was claimed, in the store's time. */
  readonly claimedAtMs: number;
};

// All have the same shape, and what is rare is null in the row where it isn't there.
export function toClaim(row: Row): Claim {
  return {
    taskId: row["task_id"],
    name: row["name"],
    payload: row["payload"],
    token: Number(row["claim_token"]),
    wake: Number(row["wake"]),
    failures: Number(row["retry_count"]),
    snoozes: Number(row["snoozes"]),
    maxAttempts: row["max_attempts"] === null ? null : Number(row["max_attempts"]),
    deaths: Number(row["deaths"]),
    gate:
      Number(row["limited"]) === 1 ? { group: row["concurrency_key"] as string | null } : undefined,
    hasDependents: Number(row["dependents"]) > 0 || undefined,
    doomed: Number(row["depends"]) === 3 || undefined,
    scheduledAtMs: row["scheduled_at"] === null ? undefined : Number(row["scheduled_at"]),
    trace: row["trace"],
    run: row["run_seq"] === undefined ? undefined : toClaimedRun(row),
  };
}

function toClaimedRun(row: Row): ClaimedRun {
  return {
    version: row["flow_version"] === null ? null : Number(row["flow_version"]),
    cursor: row["cursor"],
    state: row["state"],
    intent: row["intent"],
    waiting: row["waiting"],
    stoppedAt: row["stopped_at"],
    seq: Number(row["run_seq"]),
    cancelRequested: Number(row["cancel_requested"]) === 1,
    tenant: row["tenant"],
    createdAtMs: Number(row["created_at"]),
    claimedAtMs: Number(row["last_update"]),
  };
}
