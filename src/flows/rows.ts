import type { Json } from "../base/json.ts";
import type { Row } from "../store/database.ts";
import type { Blockers } from "../tasks/inspect/blocked-by.ts";
import { type Task, toTask } from "../tasks/rows.ts";
import { parked } from "../tasks/sql/task-state.ts";
import { type TaskEvent, toEvent } from "../tasks/tasks.ts";
import type { Intent, RunError, State, RunWait } from "./decide/run.ts";

/** What a run that hasn't ended does right now. */
export type Doing =
  /** A pod has it. */
  | { readonly type: "running"; readonly podId: string; readonly sinceMs: number }
  /** It is about to run: somebody has to claim it. */
  | { readonly type: "ready" }
  | { readonly type: "retrying"; readonly atMs: number }
  /** It hasn't begun, and was told when to. */
  | { readonly type: "delayed"; readonly untilMs: number }
  | { readonly type: "sleeping"; readonly sinceMs: number; readonly untilMs: number }
  /** Null where it waits for as long as it takes. */
  | {
      readonly type: "waiting_for_signal";
      readonly name: string;
      readonly sinceMs: number;
      readonly untilMs: number | null;
    }
  | { readonly type: "waiting_for_children"; readonly sinceMs: number }
  /** For those that it was to run after. */
  | { readonly type: "waiting_for_others" }
  /** As many of its queue, key or tenant run as may. */
  | { readonly type: "waiting_for_room"; readonly scope: string | null }
  /** It can't be read, and nobody touches it until somebody has looked. */
  | {
      readonly type: "set_aside";
      readonly reason: string;
      readonly message: string;
      readonly byVersion: number;
    };

/** A run as people see it. */
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
  /** 1 on the first try of what is at the cursor. */
  readonly attempt: number;
  readonly deaths: number;
  readonly status: "open" | "completed" | "failed" | "cancelled";
  /** Null once it has ended. */
  readonly doing: Doing | null;
  /**
   * No pod that is up may take it: none works on its flow, or none in its version or a later one. Always
   * false while a pod has it and once it has ended.
   */
  readonly noWorker: boolean;
  /** Its flow, or everything, is paused, so nobody claims it. */
  readonly paused: boolean;
  /** The ending that its finalizers lead to; null while transitions run. */
  readonly intent: Intent["type"] | null;
  /** What it gives, once it has completed. */
  readonly output: Json;
  /** Why it failed, or what the last attempt failed with. */
  readonly error: RunError | null;
  readonly progress: Json;
  readonly cancelRequested: boolean;
  /** The run that has started it. */
  readonly parentId: string | null;
  /** What it waits for or has waited for: those that it was to run after, and its children. */
  readonly waitsFor: readonly string[];
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

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
    // What runs now began with the claim, or when what was before it was stored.
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

/** A row may hold anything; looking at it must still work. */
function readJson(text: unknown): Json {
  if (typeof text !== "string") return null;
  try {
    return JSON.parse(text) as Json;
  } catch {
    return null;
  }
}

/** One thing that happened to a run, as it is stored. */
export type HistoryEntry = TaskEvent & {
  /** The transition or finalizer that it is about. */
  readonly transition: string | null;
  /** When the attempt began that it tells the end of. */
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
