import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Random } from "../../base/random.ts";
import type { Throttled } from "../claim/throttle.ts";
import type { FinishWriter } from "../finish/finish-writer.ts";
import type { FinishedAttempt } from "../finish/finish.ts";
import type { AttemptOutcome } from "../finish/outcome.ts";
import type { Claim } from "../rows.ts";
import type { TaskHandler } from "../task.ts";
import { type AttemptSpan, traceIdOf } from "../trace.ts";
import type { AttemptParts } from "./context.ts";
import type { WorkerEvent } from "./events.ts";
import type { TaskProgress } from "./progress.ts";

/** Why a running attempt is stopped. */
export type StopReason = "timeout" | "cancel" | "shutdown" | "claim_lost";

/** One attempt in progress on this pod. */
export type TaskAttempt = {
  readonly claim: Claim;
  readonly handler: TaskHandler;
  /** When the current work began: the attempt, or the transition of a run. */
  startedMs: number;
  /** The timeout of that work. */
  timeoutMs: number;
  /** When the worker must act on it next: at its timeout, then at the end of its grace. */
  actAtMs: number;
  /** The last `wake` read, which a later decision must not miss. */
  wake: number;
  /** How often the driver has written this run. 0 for a task. */
  runSeq: number;
  stopReason: StopReason | undefined;
  /**
   * Set once, when the worker has accepted the outcome; a handler that settles later changes
   * nothing.
   */
  ended: boolean;
  /** Set once the handler has called `complete` with a transaction of its own. */
  completing: boolean;
  controller: AbortController | undefined;
  /** True once the driver of a run knows of its cancel, so that it is reported only once. */
  cancelSeen: boolean;
  /**
   * Called when the work did not stop within its grace. Only set where the flow's driver ends the
   * attempt.
   */
  abandon: (() => void) | undefined;
  /** Only set when the program traces. */
  span: AttemptSpan | undefined;
  /** Only set when its name is throttled. */
  throttled: Throttled | undefined;
};

/** What a pod provides to the driver of a flow's runs. */
export type DriverHost = AttemptParts & {
  clock: Clock;
  random: Random;
  ids: Ids;
  finishWriter: Pick<FinishWriter, "put">;
  progress: Pick<TaskProgress, "forget" | "isUnsaved" | "leave">;
  /** Aborts when there is no more time to wait for the store. */
  signal: AbortSignal;
  /** True when the pod stops, so that a stored run is released instead of continued. */
  stopping: () => boolean;
  /** Must be called when the attempt's `actAtMs` has changed. */
  watch: (atMs: number) => void;
  onEvent: (event: WorkerEvent) => void;
};

/** A run was driven as far as possible and its state is stored, or could not be stored. */
export type DriveResult =
  | ({ readonly type: "driven" } & FinishedAttempt)
  | { readonly type: "not_stored"; readonly error: unknown };

/** Drives a claimed run from transition to transition. Never rejects. */
export type FlowDriver = (attempt: TaskAttempt, parts: DriverHost) => Promise<DriveResult>;

/** Creates the attempt of a claim. */
export function startAttempt(claim: Claim, handler: TaskHandler, nowMs: number): TaskAttempt {
  return {
    claim,
    handler,
    startedMs: nowMs,
    timeoutMs: handler.options.timeoutMs,
    actAtMs: nowMs + handler.options.timeoutMs,
    wake: claim.wake,
    runSeq: claim.run?.seq ?? 0,
    stopReason: undefined,
    ended: false,
    completing: false,
    controller: undefined,
    cancelSeen: false,
    abandon: undefined,
    span: undefined,
    throttled: undefined,
  };
}

/** Aborts the handler's signal. The first reason counts. */
export function stopAttempt(attempt: TaskAttempt, reason: StopReason): void {
  if (attempt.stopReason !== undefined) return;
  attempt.stopReason = reason;
  attempt.controller?.abort(stopError(attempt));
}

/** The error that an attempt's signal aborts with. */
export function stopError({ claim, timeoutMs, stopReason }: TaskAttempt): FlotillaError {
  switch (stopReason) {
    case "timeout":
      return new FlotillaError("timeout", `the attempt took longer than ${timeoutMs} ms`);
    case "claim_lost":
      return new FlotillaError("claim_lost", `another pod has task ${claim.taskId} now`);
    case "cancel":
      return new FlotillaError("cancelled", `task ${claim.taskId} was cancelled`);
    case "shutdown":
    case undefined:
      return new FlotillaError("cancelled", "this pod is shutting down");
  }
}

/** The signal of an attempt. Most handlers never read it, so it is created on demand. */
export function signalOf(attempt: TaskAttempt): AbortSignal {
  if (!attempt.controller) {
    attempt.controller = new AbortController();
    if (attempt.stopReason) attempt.controller.abort(stopError(attempt));
  }
  return attempt.controller.signal;
}

/** The outcome when a handler threw, or never settled after it was stopped. */
export function outcomeOfThrown(attempt: TaskAttempt, thrown: unknown): AttemptOutcome {
  switch (attempt.stopReason) {
    case "timeout":
      return { type: "timed_out", timeoutMs: attempt.timeoutMs };
    case "cancel":
      return { type: "cancelled" };
    case "shutdown":
    case "claim_lost":
      return { type: "interrupted" };
    case undefined:
      return { type: "threw", thrown };
  }
}

/** The log fields that identify a task, or a run as it was claimed. */
export function taskFields({ claim, span, handler }: TaskAttempt, podId: string) {
  const traceId = traceIdOf(span, claim.trace);
  const { flow } = handler;
  return {
    ...(flow
      ? {
          run_id: claim.taskId,
          flow: claim.name,
          run_version: flow.version,
          transition: claim.run?.cursor ?? null,
        }
      : { task: claim.taskId, name: claim.name }),
    pod: podId,
    attempt: claim.failures + 1,
    token: claim.token,
    ...(traceId !== undefined && { trace_id: traceId }),
  };
}
