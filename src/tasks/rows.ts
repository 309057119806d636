import { FlotillaError } from "../base/errors.ts";
import { isJsonObject, type Json } from "../base/json.ts";
import type { Row } from "../store/database.ts";
import { depends, parked } from "./sql/task-state.ts";

/** How long tasks are kept after they ended, in milliseconds, by outcome. */
export type Retention = {
  readonly completed: number;
  readonly failed: number;
  readonly cancelled: number;
};

/** The throttle that a pending task waits for, over the whole fleet. */
export type HeldByThrottle = {
  readonly name: string;
  /** Null if the task's input determines the key: then the other fields cover all keys together. */
  readonly key: string | null;
  /** How many calls all pods may have in flight at once, and how many they have. */
  readonly limit: number;
  readonly inFlight: number;
  /**
   * How many wait for a permit: calls on pods, and tasks that could be claimed with one. Tasks of a
   * name are not counted beyond 10,000.
   */
  readonly waiting: number;
  /** How many of those come before the task. */
  readonly ahead: number;
  /** The approximate wait at the learned rate; null if that is unknown. */
  readonly aboutMs: number | null;
};

/** Why a task failed, as stored. */
export type TaskError = {
  readonly code: string;
  readonly message: string;
  readonly stack?: string;
  /** With `dependency_failed`: the dependency that did not complete. */
  readonly taskId?: string;
};

/** Why no pod claims a task until it is resumed: what is stored of a step can't be used. */
export type SetAsideTask = {
  readonly reason: string;
  readonly message: string;
  /** The key of the step. */
  readonly step?: string;
  /** The hashes of its stored and its present input, if these differ. */
  readonly stored?: string;
  readonly given?: string;
};

/** A task in its public form: one row of `task`. */
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
  /** The schedule's time that it was created for; null if no schedule created it. */
  readonly scheduledAtMs: number | null;
  /**
   * When the handler of its last attempt was called, by the store's clock; null if none was, and for a
   * run, whose history has the starts. Of a running task only `get` knows it, if the task is among those
   * that its pod has run for longest.
   */
  readonly startedAtMs: number | null;
  /** Attempts that have failed so far. */
  readonly failures: number;
  /** How often it has snoozed itself. */
  readonly snoozes: number;
  /** Null if the handler's own number applies. */
  readonly maxAttempts: number | null;
  /** Pods that died while they ran it. */
  readonly deaths: number;
  readonly claimToken: number;
  readonly progress: Json;
  readonly cancelRequested: boolean;
  /** The scope of its limit by key, as in `limits`; null if it has none. */
  readonly scope: string | null;
  /** Its dependencies, open or ended, in the given order. */
  readonly waitsFor: readonly string[];
  /**
   * For a run: the highest version of its flow that has advanced it, 0 before the first. Null for a
   * task.
   */
  readonly flowVersion: number | null;
  /** The highest version of a task's code that has stored a step of it; null if none has. */
  readonly version: number | null;
} & (
  | {
      readonly status: "pending";
      readonly error: TaskError | null;
      /**
       * True if no live pod handles this name or, for a run, this version or a later one. It waits
       * until one does.
       */
      readonly noWorker: boolean;
      /** True if this name or all names are paused, so that no pod claims it. */
      readonly paused: boolean;
      /** The concurrency limit that it is blocked by; null if there is none. */
      readonly blockedBy: string | null;
      /** The throttle whose permits it waits for; null if none is known. */
      readonly throttledBy: HeldByThrottle | null;
      /** Why it was set aside; null if it wasn't. */
      readonly setAside: SetAsideTask | null;
    }
  | { readonly status: "claimed"; readonly claimedBy: string; readonly error: TaskError | null }
  | { readonly status: "completed"; readonly result: Json }
  | { readonly status: "failed"; readonly error: TaskError }
  | { readonly status: "cancelled"; readonly error: TaskError | null }
);

export type TaskStatus = Task["status"];

/** How a task stands, without what users put in. */
export type TaskState = Pick<
  Task,
  | "taskId"
  | "tenant"
  | "name"
  | "status"
  | "failures"
  | "deaths"
  | "cancelRequested"
  | "runAtMs"
  | "updatedAtMs"
> & {
  /** The pod that runs it. */
  readonly claimedBy: string | null;
};

/**
 * A task that this pod has claimed: what an attempt needs, and the fencing values of its writes.
 */
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
  /** Present if the task is limited: with the scope of its key, if it has one. */
  readonly limited?: { readonly scope: string | null } | undefined;
  /** True if the task had dependents when it was claimed. */
  readonly hasDependents?: boolean | undefined;
  /** True if a dependency failed or was cancelled, so that the task must not run. */
  readonly dependencyFailed?: boolean | undefined;
  /** When it was claimed, by the store's clock. */
  readonly claimedAtMs: number;
  /** Since when it could have been claimed; undefined where it waited for other tasks. */
  readonly dueAtMs?: number | undefined;
  /** The schedule's time that it was created for. */
  readonly scheduledAtMs?: number | undefined;
  /** The stored trace context of its enqueue; may hold anything. */
  readonly trace: string | null;
  /** Present if it may be a run of a flow. */
  readonly run?: ClaimedRun | undefined;
  /** Present if the code of some task has a version. */
  readonly versions?: ClaimedVersions | undefined;
};

/** Which versions of a task's code have stored steps of it. */
export type ClaimedVersions = {
  /** The highest; 0 if none with a version has. */
  readonly highest: number;
  /** The first, 0 if it had no version; null if none is stored. */
  readonly begunBy: number | null;
};

/** The columns of a run. */
export type ClaimedRun = {
  /** Null if the row is a task. */
  readonly version: number | null;
  readonly cursor: string | null;
  readonly state: string | null;
  readonly intent: string | null;
  readonly waiting: string | null;
  readonly stoppedAt: string | null;
  /** How often its drivers have written it. */
  readonly seq: number;
  readonly cancelRequested: boolean;
  readonly tenant: string;
  readonly createdAtMs: number;
  /** When it was claimed, by the store's clock. */
  readonly claimedAtMs: number;
};

export const taskStatuses = ["pending", "claimed", "completed", "failed", "cancelled"] as const;

/**
 * How a pending task stands, as `depth` counts it: ready to be claimed, delayed, waiting for other tasks,
 * blocked by a limit, or ready and required to run alone.
 */
export const pendingStates = ["ready", "delayed", "waiting", "blocked", "alone"] as const;

export type PendingState = (typeof pendingStates)[number];

/** Converts a row of `task` to its public form. */
export function toTask(row: Row, waitsFor: readonly string[] = []): Task {
  const status = row["status"] as TaskStatus;
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
    // While a task runs, the row still has the start of the attempt before.
    startedAtMs:
      row["started_at"] === null || status === "claimed" ? null : Number(row["started_at"]),
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
    version: row["task_version"] === null ? null : Number(row["task_version"]),
  };
  const error = lenientJson(row["error"]) as TaskError | null;
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

export function toTaskState(row: Row): TaskState {
  const status = row["status"] as TaskStatus;
  return {
    taskId: row["task_id"],
    tenant: row["tenant"],
    name: row["name"],
    status,
    claimedBy: status === "claimed" ? row["claimed_by"] : null,
    failures: Number(row["retry_count"]),
    deaths: Number(row["deaths"]),
    cancelRequested: Number(row["cancel_requested"]) === 1,
    runAtMs: Number(row["run_at"]),
    updatedAtMs: Number(row["last_update"]),
  };
}

/** A row inserted by hand may hold invalid JSON; inspecting it must still work. */
export function lenientJson(text: unknown): Json {
  if (typeof text !== "string") return (text ?? null) as Json;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return text;
  }
}

/**
 * A row that was claimed at this time. All claims have the same shape; rare columns are null in the row.
 */
export function toClaim(row: Row, claimedAtMs: number): Claim {
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
    limited:
      Number(row["limited"]) === 1 ? { scope: row["concurrency_key"] as string | null } : undefined,
    hasDependents: Number(row["dependents"]) > 0 || undefined,
    dependencyFailed: Number(row["depends"]) === depends.failed || undefined,
    claimedAtMs,
    dueAtMs:
      row["depends"] === null ? Number(row["created_at"]) + Number(row["due_after"]) : undefined,
    scheduledAtMs: row["scheduled_at"] === null ? undefined : Number(row["scheduled_at"]),
    trace: row["trace"],
    run: row["run_seq"] === undefined ? undefined : toClaimedRun(row),
    versions: row["has_steps"] === undefined ? undefined : toVersions(row),
  };
}

function toVersions(row: Row): ClaimedVersions {
  const begun = row["begun_version"] === null ? undefined : Number(row["begun_version"]);
  const byUnversioned = Number(row["has_steps"]) === 1 ? 0 : null;
  return { highest: Number(row["task_version"] ?? 0), begunBy: begun ?? byUnversioned };
}

/**
 * What the row itself shows of why a task waits. Workers, pauses and throttles are added by
 * `markWaiting`.
 */
function blockedState(row: Row) {
  // `blocked_by` keeps its value after the task is unblocked.
  const blockedBy: string | null =
    Number(row["parked"]) === parked.blocked ? row["blocked_by"] : null;
  const setAside =
    Number(row["parked"]) === parked.setAside ? toSetAside(lenientJson(row["set_aside"])) : null;
  return { noWorker: false, paused: false, blockedBy, throttledBy: null, setAside };
}

function toSetAside(stored: Json): SetAsideTask {
  const found = isJsonObject(stored) ? stored : {};
  const text = (name: string) => (typeof found[name] === "string" ? found[name] : undefined);
  const [step, was, given] = [text("step"), text("stored"), text("given")];
  return {
    reason: text("reason") ?? "",
    message: text("message") ?? "",
    ...(step !== undefined && { step }),
    ...(was !== undefined && { stored: was }),
    ...(given !== undefined && { given }),
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
