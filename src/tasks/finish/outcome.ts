import { type Backoff, backoffMs } from "../../base/backoff.ts";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Random } from "../../base/random.ts";
import { followUpName, type TaskHandler } from "../task.ts";
import type { Claim, TaskError } from "../rows.ts";
import type { Finish, FollowUp } from "../sql/finish.ts";

/** How an attempt ended on the pod that made it. */
export type AttemptOutcome =
  | { readonly type: "returned"; readonly result: string }
  | { readonly type: "threw"; readonly thrown: unknown }
  | { readonly type: "timed_out"; readonly timeoutMs: number }
  | { readonly type: "cancelled" }
  /** Nobody's fault: it is given back uncounted, for now or for a while. */
  | { readonly type: "interrupted"; readonly delayMs?: number }
  /** The handler wasn't run, because what the task waits for didn't complete. */
  | { readonly type: "unmet"; readonly error: TaskError };

export type RetryPolicy = { readonly attempts: number; readonly backoff: Backoff };

/** Decides; never does. What the store should say of an attempt that has ended. */
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
      // A shutdown is no fault of the task, so the attempt is given back uncounted.
      return {
        ...base,
        status: "pending",
        counted: 0,
        delayMs: outcome.delayMs ?? 0,
        wake: claim.wake,
        event: null,
      };
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
      if (attempt >= limit || finalCodes.includes(error.code)) {
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

/** What a completed task is stored with. */
export function completedFinish(
  { taskId, token }: Pick<Claim, "taskId" | "token">,
  result: string,
): Finish {
  return {
    taskId,
    token,
    status: "completed",
    result,
    error: null,
    counted: 0,
    delayMs: null,
    wake: null,
    event: null,
  };
}

function retryDelayMs(
  outcome: AttemptOutcome,
  attempt: number,
  policy: RetryPolicy,
  random: Random,
): number {
  const askedMs = outcome.type === "threw" ? retryAfterOf(outcome.thrown) : 0;
  return Math.max(backoffMs(attempt, random, policy.backoff), askedMs);
}

function outcomeError(
  outcome: { type: "threw"; thrown: unknown } | { type: "timed_out"; timeoutMs: number },
): TaskError {
  if (outcome.type === "threw") return thrownError(outcome.thrown);
  return { code: "timeout", message: `the attempt took longer than ${outcome.timeoutMs} ms` };
}

const maxStackChars = 4_000;
const maxRetryAfterMs = 7 * 24 * 60 * 60_000;

/** Errors for which another attempt could only end the same way. */
export const finalCodes: readonly string[] = [
  "aborted",
  "invalid_input",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
];

/** What is stored of something that was thrown. */
export function thrownError(thrown: unknown): TaskError {
  const code = thrown instanceof FlotillaError ? thrown.code : "handler_failed";
  const stack = thrown instanceof Error ? fieldOf(thrown, "stack") : undefined;
  return {
    code,
    message: thrownText(thrown),
    ...(typeof stack === "string" && stack && { stack: storable(stack.slice(0, maxStackChars)) }),
  };
}

export function thrownText(thrown: unknown): string {
  return storable(messageOf(thrown));
}

/** How long it asks to wait before another attempt; 0 where it says nothing of that. */
export function retryAfterOf(thrown: unknown): number {
  const asked = fieldOf(thrown, "retryAfterMs");
  return typeof asked === "number" && asked > 0 ? Math.min(Math.round(asked), maxRetryAfterMs) : 0;
}

/** Handlers throw everything, also objects that throw when they are looked at. */
function fieldOf(thrown: unknown, field: string): unknown {
  try {
    return (thrown as Readonly<Record<string, unknown>> | null | undefined)?.[field];
  } catch {
    return undefined;
  }
}

/** A lone surrogate or U+0000 in a message would make the whole batch of finishes unstorable. */
function storable(text: string): string {
  return text.toWellFormed().replaceAll("\u0000", "\uFFFD");
}

/** How long what a handler threw asks to wait, where it is a snooze. */
export function snoozeOf(thrown: unknown): number | undefined {
  if (!(thrown instanceof FlotillaError) || thrown.code !== "snoozed") return undefined;
  const asked = thrown.details?.["snoozeMs"];
  return typeof asked === "number" ? asked : undefined;
}

/** What the store should say of a task that waits, of its own accord, for its next run. */
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

/**
 * The handlers by name, with those that `onFailure` brings. What follows a failure is a task like any
 * other: it is stored, claimed, tried again, and can be looked at.
 */
export function withFollowUps(handlers: Iterable<TaskHandler>): TaskHandler[] {
  return [...handlers].flatMap((handler) => [
    handler,
    ...(handler.onFailure ? [handler.onFailure] : []),
  ]);
}

/** A failed task, as far as what follows it needs to know. */
type Failed = Pick<Claim, "taskId" | "name" | "payload" | "token"> & {
  readonly attempts: number;
  /** The error as it is stored. */
  readonly error: string;
};

/** One per claim that fails: a task that is started over and fails again has another token. */
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

/** A row that was inserted by hand may hold anything; it is passed on as text then. */
function asJson(payload: string): string {
  try {
    JSON.parse(payload);
    return payload;
  } catch {
    return JSON.stringify(payload);
  }
}

/** Adds what follows, where an attempt has failed its task for good and its handler wants to know. */
export function withFollowUp(finish: Finish, claim: Claim, handler: TaskHandler, ids: Ids): Finish {
  const { status, error, event, counted } = finish;
  if (status !== "failed" || error === null || !handler.onFailure) return finish;
  const followUp = followUpOf({ ...claim, attempts: claim.failures + counted, error }, ids);
  const detail = `${error.slice(0, -1)},"followUp":${JSON.stringify(followUp.taskId)}}`;
  return { ...finish, followUp, event: event && { ...event, detail } };
}
