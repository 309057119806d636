import type { Clock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { FinishedAttempt } from "../finish/finish.ts";
import type { TaskError } from "../rows.ts";
import { type TaskAttempt, taskFields } from "./attempt.ts";
import type { Finish } from "../sql/finish.ts";
import { isRefused } from "../claim/throttle.ts";
import { endAttemptSpan } from "../trace.ts";

/** Events of a worker, for metrics. */
export type WorkerEvent =
  | { readonly type: "claimed"; readonly tasks: number; readonly tookMs: number }
  | { readonly type: "claim_failed"; readonly code: string; readonly waitMs: number }
  | {
      readonly type: "ended";
      readonly name: string;
      readonly outcome: TaskOutcome;
      readonly tookMs: number;
    }
  | {
      /** A transition or finalizer of a run was executed or waited, and its outcome is stored. */
      readonly type: "transition";
      readonly flow: string;
      readonly transition: string;
      readonly outcome: TransitionOutcome;
      readonly tookMs: number;
    }
  /** A run was written for the first time and is at its first transition. */
  | { readonly type: "run_begun"; readonly flow: string }
  /** The run cannot be read, and an operator has to inspect it. */
  | { readonly type: "run_set_aside"; readonly flow: string; readonly reason: string }
  | {
      readonly type: "run_ended";
      readonly flow: string;
      readonly status: "completed" | "failed" | "cancelled";
      /** Since its start, by the store's clock. */
      readonly tookMs: number;
    };

export type TransitionOutcome =
  | "completed"
  | "retry"
  | "failed"
  | "cancelled"
  | "parked"
  /** Released unchanged: the pod stops, or a read of the store failed. */
  | "interrupted"
  /** Another pod has the run, and this pod's outcome is not stored. */
  | "lost";

export type TaskOutcome =
  | "completed"
  | "retry"
  | "failed"
  | "cancelled"
  | "released"
  | "snoozed"
  | "lost";

export type AttemptReports = ReturnType<typeof createAttemptReports>;

/** Reports attempts and claims: as events, in the trace, and in the log. */
export function createAttemptReports(parts: {
  podId: string;
  clock: Clock;
  log: Logger;
  onEvent: (event: WorkerEvent) => void;
}) {
  const { podId, clock, log, onEvent } = parts;
  return {
    ended(attempt: TaskAttempt, { finish, finished }: FinishedAttempt): void {
      const { claim: task, startedMs, span } = attempt;
      const outcome = finished.type === "lost" ? "lost" : outcomeOf(finish);
      onEvent({ type: "ended", name: task.name, outcome, tookMs: clock.monotonic() - startedMs });
      if (span) endAttemptSpan(span, outcome, finish.error);
      if (outcome === "completed") return;
      const fields = { ...taskFields(attempt, podId), outcome };
      if (outcome === "released" && isRefused(attempt)) {
        // The handler was not called, and a full throttle causes many of these.
        log.debug(fields, "task released: no throttle permit");
        return;
      }
      if (outcome === "lost") log.warn(fields, "claim lost: another pod has the task");
      else if (finish.error === null) log.info(fields, "attempt ended");
      else {
        const { code, message } = JSON.parse(finish.error) as TaskError;
        // A task whose dependency failed was never attempted.
        const what = task.doomed ? "dependency did not complete" : "attempt failed";
        log.warn({ ...fields, code, error: message }, what);
      }
    },
    notStored(attempt: TaskAttempt, error: unknown, leftTo: string): void {
      if (attempt.span) endAttemptSpan(attempt.span, "unknown", null);
      const fields = { ...taskFields(attempt, podId), error: messageOf(error), leftTo };
      log.error(fields, "attempt outcome could not be stored");
    },
    claimed(tasks: number, startedMs: number): void {
      onEvent({ type: "claimed", tasks, tookMs: clock.monotonic() - startedMs });
    },
    claimFailed(error: unknown, waitMs: number): void {
      const code = error instanceof FlotillaError ? error.code : "internal";
      onEvent({ type: "claim_failed", code, waitMs });
      log.warn({ pod: podId, code, error: messageOf(error) }, "claim failed, retrying");
    },
  };
}

function outcomeOf({ status, counted, snoozed }: Finish): TaskOutcome {
  if (status !== "pending" && status !== "claimed") return status;
  if (snoozed) return "snoozed";
  return counted === 1 ? "retry" : "released";
}
