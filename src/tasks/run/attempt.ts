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

/** Why a running attempt was told to stop. */
export type StopReason = "timeout" | "cancel" | "shutdown" | "claim_lost";

/** One attempt under way on this pod. */
export type TaskAttempt = {
  readonly claim: Claim;
  readonly handler: TaskHandler;
  /** When what runs now has begun: the attempt, or the transition of a run. */
  startedMs: number;
  /** How long that may take. */
  timeoutMs: number;
  /** When the worker must look at it again: its timeout, then the end of its grace. */
  actAtMs: number;
  /** The `wake` last seen, which a later decision must not miss. */
  wake: number;
  /** How often whoever drives a run has written it. 0 for a task. */
  runSeq: number;
  stopReason: StopReason | undefined;
  /** Set once, when the worker has taken its ending; a handler that settles later changes nothing. */
  ended: boolean;
  /** Set once the handler has asked to complete it in a transaction of its own. */
  completing: boolean;
  controller: AbortController | undefined;
  /** Whether whoever drives a run knows that it was asked to cancel, and needn't be told again. */
  cancelSeen: boolean;
  /** Told that what was to stop didn't within its grace. Only where somebody else ends the attempt. */
  abandon: (() => void) | undefined;
  /** Only where the program traces. */
  span: AttemptSpan | undefined;
  /** Only where its name is throttled. */
  throttled: Throttled | undefined;
};

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

/** Tells the handler to stop. The first reason is the one that counts. */
export function stopAttempt(attempt: TaskAttempt, reason: StopReason): void {
  if (attempt.stopReason !== undefined) return;
  attempt.stopReason = reason;
  attempt.controller?.abort(stopError(attempt));
}

export function stopError({ claim, timeoutMs, stopReason: stopped }: TaskAttempt): FlotillaError {
  switch (stopped) {
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

/** The signal of what runs. Most never ask for it, so it is made when somebody does. */
export function signalOf(attempt: TaskAttempt): AbortSignal {
  if (!attempt.controller) {
    attempt.controller = new AbortController();
    if (attempt.stopReason) attempt.controller.abort(stopError(attempt));
  }
  return attempt.controller.signal;
}

/** What it means that a handler threw, or never settled, after it was told to stop. */
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

/** What every line of the log says of whom it is about: a task, or a run as it was claimed. */
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

/** What a pod gives whoever drives the runs of a flow. */
export type DriverHost = AttemptParts & {
  clock: Clock;
  random: Random;
  ids: Ids;
  finishWriter: Pick<FinishWriter, "put">;
  progress: Pick<TaskProgress, "forget" | "isUnsaved" | "leave">;
  /** Fires when there is no more time to wait for the store. */
  signal: AbortSignal;
  /** Whether the pod stops, so that what has been stored is given back instead of going on. */
  stopping: () => boolean;
  /** The run's `actAtMs` is another now. */
  watch: (atMs: number) => void;
  onEvent: (event: WorkerEvent) => void;
};

/** A run was driven as far as it went, and what it is now is stored; or that couldn't be. */
export type DriveResult =
  | ({ readonly type: "driven" } & FinishedAttempt)
  | { readonly type: "not_stored"; readonly error: unknown };

/** Runs a claimed run from transition to transition. Never rejects. */
export type FlowDriver = (attempt: TaskAttempt, parts: DriverHost) => Promise<DriveResult>;
