import type { Json } from "../base/json.ts";

/** What a server tells of tasks, runs and agents. A newer one may tell more. */

export type ErrorView = {
  readonly code: string;
  readonly message: string;
  readonly stack?: string;
  /** With `dependency_failed`: the task that it has waited for in vain. */
  readonly taskId?: string;
  /** Of a run: whose fault it is, where it said so. */
  readonly by?: "system" | "user";
};

export type TaskView = {
  readonly taskId: string;
  readonly tenant: string;
  readonly name: string;
  readonly priority: number;
  readonly payload: Json;
  readonly key: string | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
  readonly runAtMs: number;
  /** Attempts that have failed so far. */
  readonly failures: number;
  readonly snoozes: number;
  readonly maxAttempts: number | null;
  /** What it said last of how far it is. */
  readonly progress: Json;
  readonly cancelRequested: boolean;
} & (
  | {
      readonly status: "pending";
      readonly error: ErrorView | null;
      readonly noWorker: boolean;
      readonly paused: boolean;
    }
  | { readonly status: "claimed"; readonly claimedBy: string; readonly error: ErrorView | null }
  | { readonly status: "completed"; readonly result: Json }
  | { readonly status: "failed"; readonly error: ErrorView }
  | { readonly status: "cancelled"; readonly error: ErrorView | null }
);

export type RunView = {
  readonly runId: string;
  readonly flow: string;
  readonly version: number;
  readonly tenant: string;
  readonly key: string | null;
  readonly priority: number;
  readonly input: Json;
  /** The transition or finalizer that is next or runs. */
  readonly at: string | null;
  /** What transitions have returned so far. */
  readonly state: Readonly<Record<string, Json>>;
  readonly attempt: number;
  readonly status: "open" | "completed" | "failed" | "cancelled";
  /** What a run that hasn't ended does right now. */
  readonly doing: RunDoing | null;
  readonly noWorker: boolean;
  readonly paused: boolean;
  readonly output: Json;
  readonly error: ErrorView | null;
  readonly progress: Json;
  readonly cancelRequested: boolean;
  readonly parentId: string | null;
  readonly createdAtMs: number;
  readonly updatedAtMs: number;
};

export type RunDoing =
  /** A pod has it. */
  | { readonly type: "running"; readonly podId: string; readonly sinceMs: number }
  /** It is about to run. */
  | { readonly type: "ready" }
  | { readonly type: "retrying"; readonly atMs: number }
  /** It hasn't begun, and was told when to. */
  | { readonly type: "delayed"; readonly untilMs: number }
  | { readonly type: "sleeping"; readonly sinceMs: number; readonly untilMs: number }
  | {
      readonly type: "waiting_for_signal";
      readonly name: string;
      readonly sinceMs: number;
      /** Null where it waits for as long as it takes. */
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

export type AgentView = {
  readonly name: string;
  /** `code`: live pods have it. `stored`: it was made over HTTP. */
  readonly source: "code" | "stored";
};
