import { type Backoff, backoffMs } from "../../base/backoff.ts";
import type { Random } from "../../base/random.ts";
import type { Claim, TaskError } from "../rows.ts";
import { snoozeOf, snoozing } from "./snooze.ts";
import type { Finish } from "../sql/finish.ts";
import { finalCodes, retryAfterOf, thrownError, thrownText } from "./thrown.ts";

/** How an attempt ended on the pod that made it. */
export type Ending =
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
export function settle(claim: Claim, ending: Ending, policy: RetryPolicy, random: Random): Finish {
  const attempt = claim.failures + 1;
  const base = { taskId: claim.taskId, token: claim.token, result: null, error: null };
  switch (ending.type) {
    case "returned":
      return completion(claim, ending.result);
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
        delayMs: ending.delayMs ?? 0,
        wake: claim.wake,
        event: null,
      };
    case "unmet": {
      const text = JSON.stringify(ending.error);
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
      const thrown = ending.type === "threw" ? ending.thrown : undefined;
      const snoozeMs = snoozeOf(thrown);
      if (snoozeMs !== undefined) return snoozing(claim, snoozeMs, thrownText(thrown));
      const error = errorOf(ending);
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
        delayMs: waitMs(ending, attempt, policy, random),
        wake: claim.wake,
        event: { type: "retry", attempt, detail: text },
      };
    }
  }
}

/** What a completed task is stored with. */
export function completion(
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

function waitMs(ending: Ending, attempt: number, policy: RetryPolicy, random: Random): number {
  const askedMs = ending.type === "threw" ? retryAfterOf(ending.thrown) : 0;
  return Math.max(backoffMs(attempt, random, policy.backoff), askedMs);
}

function errorOf(
  ending: { type: "threw"; thrown: unknown } | { type: "timed_out"; timeoutMs: number },
): TaskError {
  if (ending.type === "threw") return thrownError(ending.thrown);
  return { code: "timeout", message: `the attempt took longer than ${ending.timeoutMs} ms` };
}
