import { type Backoff, backoffMs } from "../base/backoff.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import type { Claim, TaskError } from "./row.ts";
import { snoozeOf, snoozing } from "./snooze.ts";
import type { Finish } from "./statements/finish.ts";

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

/** After this many deaths of pods under it, a task runs only on a pod that has nothing else. */
export const aloneAfterDeaths = 2;
/** After this many it is failed: the last ones happened while it ran alone. */
export const deathLimit = 4;

const stackChars = 4_000;
const retryAfterLimitMs = 7 * 24 * 60 * 60_000;

/** Errors for which another attempt could only end the same way. */
const finalCodes: readonly string[] = [
  "aborted",
  "invalid_input",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
];

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
      if (snoozeMs !== undefined) return snoozing(claim, snoozeMs, storable(messageOf(thrown)));
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
  const asked = ending.type === "threw" ? retryAfterOf(ending.thrown) : undefined;
  const wait = backoffMs(attempt, random, policy.backoff);
  return asked === undefined ? wait : Math.max(wait, Math.min(asked, retryAfterLimitMs));
}

function retryAfterOf(thrown: unknown): number | undefined {
  const asked = fieldOf(thrown, "retryAfterMs");
  return typeof asked === "number" && asked >= 0 ? Math.round(asked) : undefined;
}

/** Handlers throw everything, also objects that throw when they are looked at. */
function fieldOf(thrown: unknown, field: string): unknown {
  try {
    return (thrown as Readonly<Record<string, unknown>> | null | undefined)?.[field];
  } catch {
    return undefined;
  }
}

function errorOf(
  ending: { type: "threw"; thrown: unknown } | { type: "timed_out"; timeoutMs: number },
): TaskError {
  if (ending.type === "timed_out") {
    return { code: "timeout", message: `the attempt took longer than ${ending.timeoutMs} ms` };
  }
  const { thrown } = ending;
  const code = thrown instanceof FlotillaError ? thrown.code : "handler_failed";
  const stack = thrown instanceof Error ? fieldOf(thrown, "stack") : undefined;
  return {
    code,
    message: storable(messageOf(thrown)),
    ...(typeof stack === "string" && stack && { stack: storable(stack.slice(0, stackChars)) }),
  };
}

/** A lone surrogate or U+0000 in a message would make the whole batch of finishes unstorable. */
function storable(text: string): string {
  return text.toWellFormed().replaceAll("\u0000", "\uFFFD");
}
