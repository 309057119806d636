import type { Json } from "../base/json.ts";

/** Tasks, runs and agents as a server returns them. A newer one may return more. */

export type ErrorView = {
  readonly code: string;
  readonly message: string;
  readonly stack?: string;
  /** With `dependency_failed`: the dependency that failed. */
  readonly taskId?: string;
  /** Of a run: whose fault the error is, where the error says so. */
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
  /** The progress that it reported last. */
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
  /** The current or next transition or finalizer. */
  readonly at: string | null;
  /** The results of its transitions so far. */
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
  /** A pod runs it. */
  | { readonly type: "running"; readonly podId: string; readonly sinceMs: number }
  /** It is about to run. */
  | { readonly type: "ready" }
  | { readonly type: "retrying"; readonly atMs: number }
  /** It hasn't begun, because its start is delayed. */
  | { readonly type: "delayed"; readonly untilMs: number }
  | { readonly type: "sleeping"; readonly sinceMs: number; readonly untilMs: number }
  | {
      readonly type: "waiting_for_signal";
      readonly name: string;
      readonly sinceMs: number;
      /** Null where it waits without a deadline. */
      readonly untilMs: number | null;
    }
  | { readonly type: "waiting_for_children"; readonly sinceMs: number }
  /** It waits for its dependencies. */
  | { readonly type: "waiting_for_others" }
  /** A concurrency limit of its queue, key or tenant blocks it. */
  | { readonly type: "waiting_for_room"; readonly scope: string | null }
  /** No pod can read it: it waits for an operator, or for a version that can. */
  | {
      readonly type: "set_aside";
      readonly reason: string;
      readonly message: string;
      readonly byVersion: number;
    };

export type AgentView = {
  readonly name: string;
  /** `code`: declared in the code of live pods. `stored`: created over HTTP. */
  readonly source: "code" | "stored";
};
