import type { Clock } from "../../base/clock.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { SetAsideTask, TaskError } from "../rows.ts";
import { startedAtOf, taskFields } from "./attempt.ts";
import type { Finish } from "../sql/finish.ts";
import { isRefused } from "../claim/throttle.ts";
import { endAttemptSpan } from "../trace.ts";
import type { TaskOutcome, WorkerEvent, FinishedAttempt, TaskAttempt } from "../model.ts";

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
      const startedAtMs = startedAtOf(attempt);
      const hasRun = startedAtMs !== undefined;
      onEvent({
        type: "ended",
        name: task.name,
        outcome,
        tookMs: clock.monotonic() - startedMs,
        waitedMs:
          hasRun && task.dueAtMs !== undefined
            ? Math.max(0, startedAtMs - task.dueAtMs)
            : undefined,
        ranMs: hasRun ? Math.max(0, attempt.endedMs - attempt.beganMs) : undefined,
      });
      if (span) endAttemptSpan(span, outcome, finish.error);
      if (outcome === "completed") return;
      const fields = { ...taskFields(attempt, podId), outcome };
      if (outcome === "released" && !attempt.begun) {
        // The handler was not called. A full throttle, or a pod that stops, causes many of these.
        log.debug(
          fields,
          isRefused(attempt) ? "task released: no throttle permit" : "task released",
        );
        return;
      }
      if (outcome === "lost") log.warn(fields, "claim lost: another pod has the task");
      else if (finish.setAside !== undefined) {
        const { message } = JSON.parse(finish.setAside) as SetAsideTask;
        log.error({ ...fields, error: message }, "task set aside until it is resumed");
      } else if (finish.error === null) log.info(fields, "attempt ended");
      else {
        const { code, message } = JSON.parse(finish.error) as TaskError;
        // A task whose dependency failed was never attempted.
        const what = task.dependencyFailed ? "dependency did not complete" : "attempt failed";
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
