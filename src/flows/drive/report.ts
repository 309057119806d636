import { messageOf } from "../../base/errors.ts";
import { taskFields } from "../../tasks/run/attempt.ts";
import type { RunDecision, SetAside } from "../decide/event.ts";
import type { HistoryEvent, Run, RunError } from "../decide/run.ts";
import type { Machine } from "../machine.ts";
import type { TransitionAttempt } from "./attempt.ts";
import { type TracedOutcome, traceRun } from "./trace.ts";
import type { DriveResult, DriverHost, TaskAttempt, TransitionOutcome } from "../../tasks/model.ts";

export type RunReporter = ReturnType<typeof createRunReporter>;

type StorableDecision = Extract<RunDecision, { run: Run }>;

/** When a step began: in the store's time, for the history, and by the monotonic clock, for durations. */
export type StepStart = { readonly startedAtMs: number; readonly startedMs: number };

/**
 * Reports a run's steps once they are stored: as events, in its trace, and in the log. Never its input,
 * state or output, but the messages of errors.
 */
export function createRunReporter(machine: Machine, running: TaskAttempt, parts: DriverHost) {
  const { claim } = running;
  const { log, onEvent, clock } = parts;
  const flow = machine.name;
  const spans = traceRun(machine, running, parts);
  const claimFields = taskFields(running, parts.podId);
  const traceId = spans?.traceId ?? claimFields.trace_id;
  let transition = claim.run!.cursor;
  let attempt = claim.failures + 1;
  /** The start of an attempt of which nothing is stored yet. */
  let attemptStartedMs: number | undefined;
  let setAsideWith: SetAside | undefined;
  let fault: RunError | null = null;

  const logFields = (more: object) => ({
    ...claimFields,
    transition,
    attempt,
    ...(traceId !== undefined && { trace_id: traceId }),
    ...more,
  });

  /** Reports the outcome of a transition. */
  const reportTransition = (
    name: string,
    outcome: TransitionOutcome,
    { tookMs, error = null }: { tookMs: number; error?: RunError | null },
  ) => {
    onEvent({ type: "transition", flow, transition: name, outcome, tookMs });
    spans?.endAttempt({ transition: name, attempt }, { outcome, error }, tookMs);
  };

  const reportEvent = (event: HistoryEvent, tookMs: number, nowMs: number): void => {
    switch (event.type) {
      case "start":
        onEvent({ type: "run_begun", flow });
        log.debug(logFields({ transition: event.next }), "run started");
        return;
      case "move": {
        const { from, why } = event;
        log.info(
          logFields({ transition: event.next, from, why }),
          "run moved to another transition",
        );
        return;
      }
      case "complete": {
        reportTransition(event.transition, "completed", { tookMs });
        const fields = { transition: event.transition, attempt: event.attempt, took_ms: tookMs };
        log.debug(logFields(fields), "transition completed");
        return;
      }
      case "error": {
        const { error, retryAtMs } = event;
        const isRetry = retryAtMs !== null;
        reportTransition(event.transition, isRetry ? "retry" : "failed", { tookMs, error });
        const fields = logFields({
          transition: event.transition,
          attempt: event.attempt,
          took_ms: tookMs,
          code: error.code,
          error: error.message,
          ...(isRetry && { retry_in_ms: Math.max(0, retryAtMs - nowMs) }),
        });
        log.warn(fields, isRetry ? "transition failed, retrying" : "transition failed");
        return;
      }
      case "cancel":
        reportTransition(event.transition, "cancelled", { tookMs });
        log.info(logFields({ transition: event.transition }), "run cancelled");
        return;
      case "park": {
        reportTransition(event.transition, "parked", { tookMs });
        const fields = { transition: event.transition, for: event.waiting?.for ?? "time" };
        log.debug(logFields(fields), "run parked");
        return;
      }
      case "finish": {
        const { status } = event;
        const took = Math.max(0, nowMs - claim.run!.createdAtMs);
        onEvent({ type: "run_ended", flow, status, tookMs: took });
        const fields = logFields({ status, took_ms: took });
        if (status === "failed") log.warn(fields, "run failed");
        else log.info(fields, "run ended");
        return;
      }
      case "stepped":
        return;
      // These events are written elsewhere, never by a decision of the driver.
      case "set_aside":
      case "given_up":
      case "resume":
      case "pod_died":
      case "retried":
      case "redriven":
        return;
    }
  };

  return {
    traceId,
    /** Sets the transition and the attempt for the log lines that follow. */
    at(run: Run): void {
      transition = run.cursor;
      attempt = run.failures + 1;
    },
    /** The run's trace, if it has to be stored. */
    trace: (): string | null => spans?.toStore() ?? null,
    /** The same for the write that ends the run. */
    endedTrace: (): string | null => spans?.toStoreEnded() ?? null,
    /** The trace of runs that this run starts now. */
    childTrace: (): string | null => (spans ? spans.childContext() : claim.trace),
    traceAttempt<Result>(made: TransitionAttempt, run: () => Result): Result {
      attemptStartedMs = clock.monotonic();
      return spans ? spans.traceAttempt(made, run) : run();
    },
    stored({ events }: StorableDecision, begun: StepStart, nowMs: number): void {
      attemptStartedMs = undefined;
      spans?.stored();
      let tookMs = clock.monotonic() - begun.startedMs;
      for (const event of events) {
        // A wait began before this claim, and ends with it.
        const isWait = "startedAtMs" in event && event.startedAtMs < begun.startedAtMs;
        reportEvent(event, isWait ? Math.max(0, nowMs - event.startedAtMs) : tookMs, nowMs);
        // Further events of the same write took no time of their own.
        if ("transition" in event) tookMs = 0;
      }
    },
    /** A step is stored, and with it these events. The attempt goes on. */
    stepped(events: readonly HistoryEvent[], nowMs: number): void {
      spans?.stored();
      for (const event of events) reportEvent(event, 0, nowMs);
    },
    setAside(found: SetAside): void {
      setAsideWith = found;
    },
    readFailed(error: unknown): void {
      fault = { code: "internal", message: messageOf(error) };
      log.warn(logFields({ error: messageOf(error) }), "run read failed, releasing the run");
    },
    storeRefused(error: unknown): void {
      fault = { code: "internal", message: messageOf(error) };
      log.error(logFields({ error: fault.message }), "run write refused by the store");
    },
    driveFailed(error: unknown): void {
      fault = { code: "internal", message: messageOf(error) };
      log.error(logFields({ error: fault.message }), "run drive failed, retrying later");
    },
    releaseFailed(error: unknown): void {
      log.error(logFields({ error: messageOf(error) }), "run release failed, retrying");
    },
    /** Reports the end of the claim, and of an attempt that it left open. */
    claimEnded(driven: DriveResult): void {
      const isLost = driven.type === "driven" && driven.finished.type === "lost";
      const isStored = driven.type === "driven" && driven.finished.type === "stored";
      const left = isLost ? "lost" : isStored ? "interrupted" : undefined;
      if (attemptStartedMs !== undefined && left !== undefined) {
        const tookMs = clock.monotonic() - attemptStartedMs;
        onEvent({ type: "transition", flow, transition: transition!, outcome: left, tookMs });
        const what = isLost ? "run claim lost to another pod" : "transition interrupted";
        log[isLost ? "warn" : "info"](logFields({ took_ms: tookMs }), what);
      } else if (isLost) {
        log.warn(logFields({}), "run claim lost to another pod");
      }
      if (setAsideWith !== undefined && isStored) {
        const { reason, message } = setAsideWith;
        onEvent({ type: "run_set_aside", flow, reason });
        const fields = logFields({ reason, error: message });
        log.error(fields, "run set aside");
      }
      spans?.endClaim(runOutcome(driven), { outcome: left ?? "unknown", error: fault });
    },
  };
}

/** How the run ended, for its span, where this claim ended it. */
function runOutcome(driven: DriveResult): TracedOutcome | undefined {
  if (driven.type === "not_stored" || driven.finished.type === "lost") return undefined;
  const { status, error } = driven.finish;
  if (status === "failed") return { outcome: status, error: JSON.parse(error!) as RunError };
  return status === "completed" || status === "cancelled" ? { outcome: status } : undefined;
}
