import type { Json } from "../base/json.ts";
import type { Row } from "../store/database.ts";
import type { Blockers } from "../tasks/inspect/blocked-by.ts";
import { type Task, toTask } from "../tasks/rows.ts";
import { parked } from "../tasks/sql/task-state.ts";
import { type TaskEvent, toEvent } from "../tasks/tasks.ts";
import type { Intent, RunError, State, RunWait } from "./decide/run.ts";

/** What an open run does right now. */
export type Doing =
  /** A pod has claimed it. */
  | { readonly type: "running"; readonly podId: string; readonly sinceMs: number }
  /** It waits to be claimed. */
  | { readonly type: "ready" }
  | { readonly type: "retrying"; readonly atMs: number }
  /** It hasn't begun, and has a start time. */
  | { readonly type: "delayed"; readonly untilMs: number }
  | { readonly type: "sleeping"; readonly sinceMs: number; readonly untilMs: number }
  /** Null: without a timeout. */
  | {
      readonly type: "waiting_for_signal";
      readonly name: string;
      readonly sinceMs: number;
      readonly untilMs: number | null;
    }
  | { readonly type: "waiting_for_children"; readonly sinceMs: number }
  /** It waits for its dependencies. */
  | { readonly type: "waiting_for_others" }
  /** The concurrency limit of its queue, key or tenant is reached. */
  | { readonly type: "waiting_for_room"; readonly scope: string | null }
  /** It can't be read. No pod claims it until it is resumed or a later version retries it. */
  | {
      readonly type: "set_aside";
      readonly reason: string;
      readonly message: string;
      readonly byVersion: number;
    };

/** A run for callers. */
export type RunView = {
  readonly runId: string;
  readonly flow: string;
  /** The highest version of the flow that has advanced it; 0 before any has. */
  readonly version: number;
  readonly tenant: string;
  readonly key: string | null;
  readonly priority: number;
  readonly input: Json;
  /** The transition or finalizer that is next or runs; null before it has begun and once it has ended. */
  readonly at: string | null;
  /** What transitions have returned so far. */
  readonly state: State;
  /** 1 on the first attempt of the part at the cursor. */
  readonly attempt: number;
  readonly deaths: number;
  readonly status: "open" | "completed" | "failed" | "cancelled";
  /** Null once it has ended. */
  readonly doing: Doing | null;
  /**
   * No live pod may claim it: none has its flow, or none in its version or a later one. Always false while
   * it is claimed and once it has ended.
   */
  readonly noWorker: boolean;
  /** Its flow, or everything, is paused, so no pod claims it. */
  readonly paused: boolean;
  /** How it will end after its finalizers; null while transitions run. */
  readonly intent: Intent["type"] | null;
  /** Its result, once it has completed. */
  readonly output: Json;
  /** Why the run, or its last attempt, failed. */
  readonly error: RunError | null;
  readonly progress: Json;
  readonly cancelRequested: boolean;
  /** The run that started it. */
  readonly parentId: string | null;
  /** The runs and tasks that it waits or waited for: its dependencies, and its children. */
  readonly waitsFor: readonly string[];
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

/** Converts a run's row. */
export function toRun(row: Row, waitsFor: readonly string[] = [], holds?: Blockers): RunView {
  const task: Task = toTask(row, waitsFor);
  const { status, tenant, key, priority, payload, failures, deaths, progress } = task;
  const isOpen = status === "pending" || status === "claimed";
  const version = Number(row["flow_version"]);
  const isWaiting = status === "pending";
  const advancedMs = Number(row["advanced_at"] ?? 0);
  return {
    runId: task.taskId,
    flow: task.name,
    version,
    tenant,
    key,
    priority,
    input: payload,
    at: row["cursor"],
    state: (readJson(row["state"]) ?? {}) as State,
    attempt: failures + 1,
    deaths,
    status: isOpen ? "open" : status,
    doing: isOpen ? doingOf(row) : null,
    noWorker: isWaiting && holds?.noWorker(task.name, version) === true,
    paused: isWaiting && holds?.paused(task.name) === true,
    intent: (readJson(row["intent"]) as Intent | null)?.type ?? null,
    output: status === "completed" ? task.result : null,
    error: ("error" in task ? task.error : null) as RunError | null,
    progress,
    cancelRequested: task.cancelRequested,
    parentId: row["parent_id"],
    waitsFor,
    createdAtMs: task.createdAtMs,
    updatedAtMs: Math.max(task.updatedAtMs, advancedMs),
  };
}

function doingOf(row: Row): Doing {
  const updatedMs = Number(row["last_update"]);
  if (row["status"] === "claimed") {
    // The present step began with the claim, or when the step before it was stored.
    const sinceMs = Math.max(updatedMs, Number(row["advanced_at"] ?? 0));
    return { type: "running", podId: row["claimed_by"], sinceMs };
  }
  const waiting = readJson(row["waiting"]) as RunWait | null;
  const runAtMs = Number(row["run_at"]);
  switch (Number(row["parked"])) {
    case parked.setAside: {
      const { reason, message } = (readJson(row["set_aside"]) ?? {}) as Record<string, string>;
      const byVersion = Number(row["set_aside_version"]);
      return { type: "set_aside", reason: reason ?? "", message: message ?? "", byVersion };
    }
    case parked.forDependencies:
      return waiting?.for === "children"
        ? { type: "waiting_for_children", sinceMs: waiting.sinceMs }
        : { type: "waiting_for_others" };
    case parked.blocked:
      return { type: "waiting_for_room", scope: row["blocked_by"] };
    case parked.untilSignal:
    case parked.untilDue:
      if (waiting?.for === "signal") {
        const { sinceMs, untilMs } = waiting;
        return { type: "waiting_for_signal", name: row["awaits"], sinceMs, untilMs };
      }
      if (waiting?.for === "sleep") {
        return { type: "sleeping", sinceMs: waiting.sinceMs, untilMs: waiting.untilMs };
      }
      if (Number(row["run_seq"]) === 0) return { type: "delayed", untilMs: runAtMs };
      return { type: "retrying", atMs: runAtMs };
    default:
      return { type: "ready" };
  }
}

/** A stored text may be invalid JSON; reading the row must still work. */
function readJson(text: unknown): Json {
  if (typeof text !== "string") return null;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return null;
  }
}

/** A stored event of a run. */
export type HistoryEntry = TaskEvent & {
  /** The transition or finalizer that the event is about. */
  readonly transition: string | null;
  /** When the attempt began that the event ends. */
  readonly startedAtMs: number | null;
};

export function toHistoryEntry(row: Row): HistoryEntry {
  const event = toEvent(row);
  const { transition, startedAtMs } = (event.detail ?? {}) as { readonly [name: string]: Json };
  return {
    ...event,
    transition: typeof transition === "string" ? transition : null,
    startedAtMs: typeof startedAtMs === "number" ? startedAtMs : null,
  };
}
