import type { Clock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { FinishedAttempt } from "../finish/finish.ts";
import type { TaskError } from "../rows.ts";
import { type TaskAttempt, taskFields } from "./attempt.ts";
import type { Finish } from "../sql/finish.ts";
import { isRefused } from "../claim/throttle.ts";
import { endAttemptSpan } from "../trace.ts";

/** What a worker tells those who count. */
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
      /** A transition or finalizer of a run was run, or waited, and what became of it is stored. */
      readonly type: "transition";
      readonly flow: string;
      readonly transition: string;
      readonly outcome: TransitionOutcome;
      readonly tookMs: number;
    }
  /** A run was written for the first time: it stands at a transition now. */
  | { readonly type: "run_begun"; readonly flow: string }
  /** It can't be read, and people have to look at it. */
  | { readonly type: "run_set_aside"; readonly flow: string; readonly reason: string }
  | {
      readonly type: "run_ended";
      readonly flow: string;
      readonly status: "completed" | "failed" | "cancelled";
      /** Since it was started, by the store's clock. */
      readonly tookMs: number;
    };

export type TransitionOutcome =
  | "completed"
  | "retry"
  | "failed"
  | "cancelled"
  | "parked"
  /** Given back as it was: the pod stops, or the store didn't say what it was asked. */
  | "interrupted"
  /** Another pod has the run, and what this one did isn't stored. */
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

/** Says what became of attempts and of claims: to those who count, in the trace, and in the log. */
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
        // Nothing was attempted, and under a full throttle there may be many of these.
        log.debug(fields, "no permit for it yet");
        return;
      }
      if (outcome === "lost") log.warn(fields, "another pod has the task now; its result counts");
      else if (finish.error === null) log.info(fields, "an attempt ended");
      else {
        const { code, message } = JSON.parse(finish.error) as TaskError;
        // What waited in vain was never attempted.
        const what = task.doomed
          ? "a task that it waits for hasn't completed"
          : "an attempt failed";
        log.warn({ ...fields, code, error: message }, what);
      }
    },
    notStored(attempt: TaskAttempt, error: unknown, left: string): void {
      if (attempt.span) endAttemptSpan(attempt.span, "unknown", null);
      const fields = { ...taskFields(attempt, podId), error: messageOf(error) };
      log.error(fields, `how an attempt ended couldn't be stored; it is ${left}`);
    },
    claimed(tasks: number, startedMs: number): void {
      onEvent({ type: "claimed", tasks, tookMs: clock.monotonic() - startedMs });
    },
    claimFailed(error: unknown, waitMs: number): void {
      const code = error instanceof FlotillaError ? error.code : "internal";
      onEvent({ type: "claim_failed", code, waitMs });
      log.warn({ pod: podId, code, error: messageOf(error) }, "a claim failed; trying again");
    },
  };
}

function outcomeOf({ status, counted, snoozed }: Finish): TaskOutcome {
  if (status !== "pending" && status !== "claimed") return status;
  if (snoozed) return "snoozed";
  return counted === 1 ? "retry" : "released";
}
