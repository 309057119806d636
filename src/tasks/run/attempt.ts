import { FlotillaError } from "../../base/errors.ts";
import type { StopReason, TaskAttempt, AttemptOutcome, TaskHandler } from "../model.ts";
import type { Claim } from "../rows.ts";
import { traceIdOf } from "../trace.ts";

/** Creates the attempt of a claim, whose answer may have come earlier. */
export function startAttempt(
  claim: Claim,
  handler: TaskHandler,
  nowMs: number,
  answeredMs = nowMs,
): TaskAttempt {
  return {
    claim,
    handler,
    startedMs: nowMs,
    answeredMs,
    beganMs: nowMs,
    endedMs: nowMs,
    timeoutMs: handler.options.timeoutMs,
    actAtMs: nowMs + handler.options.timeoutMs,
    wake: claim.wake,
    runSeq: claim.run?.seq ?? 0,
    stopReason: undefined,
    begun: false,
    ended: false,
    completing: false,
    controller: undefined,
    cancelSeen: false,
    abandon: undefined,
    span: undefined,
    throttled: undefined,
    steps: undefined,
    rowHeld: false,
  };
}

/**
 * When the handler of an attempt was called, by the store's clock: by the time of the claim there, and the
 * time since its answer here. Undefined if it wasn't called.
 */
export function startedAtOf(attempt: TaskAttempt): number | undefined {
  const { claim, begun, beganMs, answeredMs } = attempt;
  if (!begun || claim.dependencyFailed) return undefined;
  return claim.claimedAtMs + Math.max(0, Math.round(beganMs - answeredMs));
}

/** The first tasks among these that have begun; attempts are kept in the order of their claims. */
export function longestOf(attempts: Iterable<TaskAttempt>, count: number) {
  const found: { taskId: string; startedAtMs: number }[] = [];
  for (const attempt of attempts) {
    if (found.length === count) break;
    const startedAtMs = attempt.handler.flow ? undefined : startedAtOf(attempt);
    if (startedAtMs !== undefined) found.push({ taskId: attempt.claim.taskId, startedAtMs });
  }
  return found;
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
