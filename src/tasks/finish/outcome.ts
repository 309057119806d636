import { type Backoff, backoffMs } from "../../base/backoff.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import { storableText } from "../../base/json.ts";
import type { Ids } from "../../base/ids.ts";
import type { Random } from "../../base/random.ts";
import { followUpName } from "../task.ts";
import type { Claim, TaskError } from "../rows.ts";
import type { Finish, FollowUp } from "../sql/finish.ts";
import type { AttemptOutcome, TaskHandler } from "../model.ts";

export type RetryPolicy = { readonly attempts: number; readonly backoff: Backoff };

const maxStackChars = 4_000;
const maxRetryAfterMs = 7 * 24 * 60 * 60_000;

/** Errors after which another attempt could only end the same way. */
export const finalCodes: readonly string[] = [
  "aborted",
  "invalid_input",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
  "step_ambiguous",
  "steps_full",
];

/** Pure. Decides what the store must record for an outcome. */
export function decideFinish(
  claim: Claim,
  outcome: AttemptOutcome,
  policy: RetryPolicy,
  random: Random,
): Finish {
  const attempt = claim.failures + 1;
  const base = { taskId: claim.taskId, token: claim.token, result: null, error: null };
  switch (outcome.type) {
    case "returned":
      return completedFinish(claim, outcome.result);
    case "cancelled":
      return {
        ...base,
        status: "cancelled",
        counted: 0,
        delayMs: null,
        wake: null,
        event: { type: "cancelled", attempt, detail: null },
      };
    case "interrupted":
      // A shutdown is not the task's fault, so the attempt is released uncounted.
      return {
        ...base,
        status: "pending",
        counted: 0,
        delayMs: outcome.delayMs ?? 0,
        wake: claim.wake,
        event: null,
      };
    case "parked":
      return {
        ...base,
        status: "pending",
        counted: 0,
        delayMs: outcome.delayMs,
        wake: claim.wake,
        event: null,
        ...(outcome.awaits !== null && { awaits: outcome.awaits }),
        ...(outcome.children && { children: outcome.children }),
      };
    case "set_aside": {
      const setAside = JSON.stringify(outcome.why);
      return {
        ...base,
        status: "pending",
        counted: 0,
        delayMs: null,
        wake: claim.wake,
        setAside,
        event: { type: "set_aside", attempt, detail: setAside },
      };
    }
    case "unmet": {
      const text = JSON.stringify(outcome.error);
      const event = { type: "failed", attempt, detail: text };
      return {
        ...base,
        status: "failed",
        error: text,
        counted: 0,
        delayMs: null,
        wake: null,
        event,
      };
    }
    case "timed_out":
    case "threw": {
      const thrown = outcome.type === "threw" ? outcome.thrown : undefined;
      const snoozeMs = snoozeOf(thrown);
      if (snoozeMs !== undefined) return snoozedFinish(claim, snoozeMs, thrownText(thrown));
      const error = outcomeError(outcome);
      const text = JSON.stringify(error);
      const limit = claim.maxAttempts ?? policy.attempts;
      if (attempt >= limit || finalCodes.includes(error.code) || isStored(thrown)) {
        return {
          ...base,
          status: "failed",
          error: text,
          counted: 1,
          delayMs: null,
          wake: null,
          event: { type: "failed", attempt, detail: text },
        };
      }
      return {
        ...base,
        status: "pending",
        error: text,
        counted: 1,
        delayMs: retryDelayMs(outcome, attempt, policy, random),
        wake: claim.wake,
        event: { type: "retry", attempt, detail: text },
      };
    }
  }
}

/** True if a step is stored with this error, so that every attempt would meet it again. */
function isStored(thrown: unknown): boolean {
  return thrown instanceof FlotillaError && thrown.details?.["stored"] === true;
}

/** The finish of a completed task, whose handler was called then. */
export function completedFinish(
  { taskId, token }: Pick<Claim, "taskId" | "token">,
  result: string,
  startedAtMs?: number,
): Finish {
  return {
    taskId,
    token,
    startedAtMs,
    status: "completed",
    result,
    error: null,
    counted: 0,
    delayMs: null,
    wake: null,
    event: null,
  };
}

/** The stored form of a thrown value. */
export function thrownError(thrown: unknown): TaskError {
  const code = thrown instanceof FlotillaError ? thrown.code : "handler_failed";
  const stack = thrown instanceof Error ? fieldOf(thrown, "stack") : undefined;
  return {
    code,
    message: thrownText(thrown),
    ...(typeof stack === "string" &&
      stack && { stack: storableText(stack.slice(0, maxStackChars)) }),
  };
}

export function thrownText(thrown: unknown): string {
  // What can't be stored would keep the whole batch of finishes from being stored.
  return storableText(messageOf(thrown));
}

/** The delay that a thrown value requests before the next attempt; 0 if it requests none. */
export function retryAfterOf(thrown: unknown): number {
  const requested = fieldOf(thrown, "retryAfterMs");
  return typeof requested === "number" && requested > 0
    ? Math.min(Math.round(requested), maxRetryAfterMs)
    : 0;
}

/** The delay of a thrown snooze; undefined if the value is not a snooze. */
export function snoozeOf(thrown: unknown): number | undefined {
  if (!(thrown instanceof FlotillaError) || thrown.code !== "snoozed") return undefined;
  const requested = thrown.details?.["snoozeMs"];
  return typeof requested === "number" ? requested : undefined;
}

/**
 * The handlers, together with the ones that `onFailure` defines. A follow-up is a task like any
 * other: it is stored, claimed, retried and can be inspected.
 */
export function withFollowUps(handlers: Iterable<TaskHandler>): TaskHandler[] {
  return [...handlers].flatMap((handler) => [
    handler,
    ...(handler.onFailure ? [handler.onFailure] : []),
  ]);
}

/** The facts of a failed task that its follow-up needs. */
type Failed = Pick<Claim, "taskId" | "name" | "payload" | "token"> & {
  readonly attempts: number;
  /** The stored error. */
  readonly error: string;
};

/** One follow-up per failed claim: a task that is restarted and fails again has another token. */
export function followUpOf(failed: Failed, ids: Ids): FollowUp {
  const { taskId, name, token, attempts, error } = failed;
  const facts = JSON.stringify({ taskId, name, attempts });
  return {
    taskId: ids.next(),
    failedId: taskId,
    token,
    name: followUpName(name),
    payload: `${facts.slice(0, -1)},"input":${asJson(failed.payload)},"error":${error}}`,
  };
}

/** Adds the follow-up if the task has failed for good and its handler has `onFailure`. */
export function withFollowUp(finish: Finish, claim: Claim, handler: TaskHandler, ids: Ids): Finish {
  const { status, error, event, counted } = finish;
  if (status !== "failed" || error === null || !handler.onFailure) return finish;
  const followUp = followUpOf({ ...claim, attempts: claim.failures + counted, error }, ids);
  const detail = `${error.slice(0, -1)},"followUp":${JSON.stringify(followUp.taskId)}}`;
  return { ...finish, followUp, event: event && { ...event, detail } };
}

/** Adds when the handler was called, in the row and in the event that the attempt leaves. */
export function withStart(finish: Finish, startedAtMs: number | undefined): Finish {
  if (startedAtMs === undefined) return finish;
  const { event } = finish;
  const start = `"startedAtMs":${startedAtMs}}`;
  const detail = event && (event.detail ? `${event.detail.slice(0, -1)},${start}` : `{${start}`);
  return { ...finish, startedAtMs, event: event && { ...event, detail } };
}

function retryDelayMs(
  outcome: AttemptOutcome,
  attempt: number,
  policy: RetryPolicy,
  random: Random,
): number {
  const requestedMs = outcome.type === "threw" ? retryAfterOf(outcome.thrown) : 0;
  return Math.max(backoffMs(attempt, random, policy.backoff), requestedMs);
}

function outcomeError(
  outcome: { type: "threw"; thrown: unknown } | { type: "timed_out"; timeoutMs: number },
): TaskError {
  if (outcome.type === "threw") return thrownError(outcome.thrown);
  return { code: "timeout", message: `the attempt took longer than ${outcome.timeoutMs} ms` };
}

/** Handlers may throw anything, even objects whose getters throw. */
function fieldOf(thrown: unknown, field: string): unknown {
  try {
    return (thrown as Readonly<Record<string, unknown>> | null | undefined)?.[field];
  } catch {
    return undefined;
  }
}

/** The finish of a task that snoozed itself. */
function snoozedFinish(claim: Claim, snoozeMs: number, why: string): Finish {
  const detail = { delayMs: snoozeMs, times: claim.snoozes + 1, message: why };
  return {
    taskId: claim.taskId,
    token: claim.token,
    status: "pending",
    result: null,
    error: null,
    counted: 0,
    snoozed: 1,
    delayMs: snoozeMs,
    wake: claim.wake,
    event: { type: "snoozed", attempt: claim.failures + 1, detail: JSON.stringify(detail) },
  };
}

/** A row that was inserted by hand may hold invalid JSON, which is passed on as a string. */
function asJson(payload: string): string {
  try {
    JSON.parse(payload);
    return payload;
  } catch {
    return JSON.stringify(payload);
  }
}
