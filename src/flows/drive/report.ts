import { messageOf } from "../../base/errors.ts";
import { type Driven, type DriveParts, type Running, taskFields } from "../../tasks/run/attempt.ts";
import type { TransitionOutcome } from "../../tasks/run/events.ts";
import type { Decision, SetAside } from "../decide/event.ts";
import type { HistoryEvent, Run, RunError } from "../decide/run.ts";
import type { Machine } from "../machine.ts";
import type { Attempt } from "./attempt.ts";
import { type Became, traceRun } from "./trace.ts";

export type Telling = ReturnType<typeof telling>;

type Stored = Extract<Decision, { run: Run }>;

/** When a step has begun: in the store's time, for the history, and by the clock that durations are of. */
export type Begun = { readonly startedAtMs: number; readonly startedMs: number };

/**
 * Says what becomes of a run, once that is stored: to those who count, in its trace, and in the log.
 * Nothing of its input, state or output is said, but the messages of errors are.
 */
export function telling(machine: Machine, running: Running, parts: DriveParts) {
  const { claim } = running;
  const { log, onEvent, clock } = parts;
  const flow = machine.name;
  const spans = traceRun(machine, running, parts);
  const claimed = taskFields(running, parts.podId);
  const traceId = spans?.traceId ?? claimed.trace_id;
  let transition = claim.run!.cursor;
  let attempt = claim.failures + 1;
  /** An attempt that nothing is stored of yet, and since when it is made. */
  let triedSinceMs: number | undefined;
  let aside: SetAside | undefined;
  let fault: RunError | null = null;

  const about = (more: object) => ({
    ...claimed,
    transition,
    attempt,
    ...(traceId !== undefined && { trace_id: traceId }),
    ...more,
  });

  /** Counts what came of a transition. */
  const came = (
    name: string,
    outcome: TransitionOutcome,
    { tookMs, error = null }: { tookMs: number; error?: RunError | null },
  ) => {
    onEvent({ type: "transition", flow, transition: name, outcome, tookMs });
    spans?.noted({ transition: name, attempt }, { outcome, error }, tookMs);
  };

  const one = (event: HistoryEvent, tookMs: number, nowMs: number): void => {
    switch (event.type) {
      case "start":
        onEvent({ type: "run_begun", flow });
        log.debug(about({ transition: event.next }), "the run has begun");
        return;
      case "move": {
        const { from, why } = event;
        log.info(about({ transition: event.next, from, why }), "the run goes on at another name");
        return;
      }
      case "complete": {
        came(event.transition, "completed", { tookMs });
        const fields = { transition: event.transition, attempt: event.attempt, took_ms: tookMs };
        log.debug(about(fields), "a transition completed");
        return;
      }
      case "error": {
        const { error, retryAtMs } = event;
        const isRetry = retryAtMs !== null;
        came(event.transition, isRetry ? "retry" : "failed", { tookMs, error });
        const fields = about({
          transition: event.transition,
          attempt: event.attempt,
          took_ms: tookMs,
          code: error.code,
          error: error.message,
          ...(isRetry && { retry_in_ms: Math.max(0, retryAtMs - nowMs) }),
        });
        log.warn(fields, isRetry ? "a transition will be retried" : "a transition failed");
        return;
      }
      case "cancel":
        came(event.transition, "cancelled", { tookMs });
        log.info(about({ transition: event.transition }), "the run was cancelled");
        return;
      case "park": {
        came(event.transition, "parked", { tookMs });
        const fields = { transition: event.transition, for: event.waiting?.for ?? "time" };
        log.debug(about(fields), "the run waits");
        return;
      }
      case "finish": {
        const { status } = event;
        const took = Math.max(0, nowMs - claim.run!.createdAtMs);
        onEvent({ type: "run_ended", flow, status, tookMs: took });
        const fields = about({ status, took_ms: took });
        if (status === "failed") log.warn(fields, "the run has failed");
        else log.info(fields, "the run has ended");
        return;
      }
      // Others have noted these, and nobody decides on them here.
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
    /** Where the run stands: every line is about that from now on. */
    at(run: Run): void {
      transition = run.cursor;
      attempt = run.failures + 1;
    },
    /** The trace that the run belongs to, if that has to be stored. */
    trace: (): string | null => spans?.toStore() ?? null,
    /** The same, once the run has ended. */
    traceEnded: (): string | null => spans?.toStoreEnded() ?? null,
    /** The trace of what the run starts now. */
    carried: (): string | null => (spans ? spans.carried() : claim.trace),
    attempting<Result>(made: Attempt, run: () => Result): Result {
      triedSinceMs = clock.monotonic();
      return spans ? spans.attempting(made, run) : run();
    },
    stored({ events }: Stored, begun: Begun, nowMs: number): void {
      triedSinceMs = undefined;
      spans?.stored();
      let tookMs = clock.monotonic() - begun.startedMs;
      for (const event of events) {
        // A wait has begun before this claim, and ends with it.
        const isWait = "startedAtMs" in event && event.startedAtMs < begun.startedAtMs;
        one(event, isWait ? Math.max(0, nowMs - event.startedAtMs) : tookMs, nowMs);
        // What follows in the same write took no time of its own.
        if ("transition" in event) tookMs = 0;
      }
    },
    setAside(found: SetAside): void {
      aside = found;
    },
    unseen(error: unknown): void {
      fault = { code: "internal", message: messageOf(error) };
      log.warn(about({ error: messageOf(error) }), "a run couldn't be looked at");
    },
    refused(error: unknown): void {
      fault = { code: "internal", message: messageOf(error) };
      log.error(about({ error: fault.message }), "the store refused what became of a run");
    },
    broken(error: unknown): void {
      fault = { code: "internal", message: messageOf(error) };
      log.error(about({ error: fault.message }), "a run couldn't be driven; trying again later");
    },
    stuck(error: unknown): void {
      log.error(about({ error: messageOf(error) }), "a run can't be given back");
    },
    /** The claim is over. */
    over(driven: Driven): void {
      const isLost = driven.type === "driven" && driven.finished.type === "lost";
      const isStored = driven.type === "driven" && driven.finished.type === "stored";
      const left = isLost ? "lost" : isStored ? "interrupted" : undefined;
      if (triedSinceMs !== undefined && left !== undefined) {
        const tookMs = clock.monotonic() - triedSinceMs;
        onEvent({ type: "transition", flow, transition: transition!, outcome: left, tookMs });
        const what = isLost ? "another pod has the run now" : "a transition was interrupted";
        log[isLost ? "warn" : "info"](about({ took_ms: tookMs }), what);
      } else if (isLost) {
        log.warn(about({}), "another pod has the run now");
      }
      if (aside !== undefined && isStored) {
        const { reason, message } = aside;
        onEvent({ type: "run_set_aside", flow, reason });
        const fields = about({ reason, error: message });
        log.error(fields, "the run was set aside: it can't be read");
      }
      spans?.over(endOf(driven), { outcome: left ?? "unknown", error: fault });
    },
  };
}

/** How the run ended, for its span, where that is what the claim came to. */
function endOf(driven: Driven): Became | undefined {
  if (driven.type === "not_stored" || driven.finished.type === "lost") return undefined;
  const { status, error } = driven.finish;
  if (status === "failed") return { outcome: status, error: JSON.parse(error!) as RunError };
  return status === "completed" || status === "cancelled" ? { outcome: status } : undefined;
}
