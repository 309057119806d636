import { FlotillaError } from "../../base/errors.ts";
import {
  finalCodes,
  retryAfterOf,
  snoozeOf,
  thrownError,
  thrownText,
} from "../../tasks/finish/outcome.ts";
import type { RunError } from "./run.ts";

/** What an error thrown by a function means for its run. */
export type Thrown =
  /** Retry after the backoff and not before `retryAfterMs`, while attempts are left. */
  | { readonly type: "retry"; readonly error: RunError; readonly retryAfterMs: number }
  /** The run fails now. A retry would fail too. */
  | { readonly type: "fail"; readonly error: RunError }
  | { readonly type: "cancel"; readonly reason: string }
  /** Try again later. It doesn't count as an attempt. */
  | { readonly type: "snooze"; readonly delayMs: number; readonly message: string };

export type UnrecoverableOptions = ErrorOptions & {
  /** Whose fault it is: the system's, or the user's request. Default `system`. */
  by?: "system" | "user";
};

/** Thrown by a transition: the run can't succeed, whatever attempts are left. */
export function unrecoverable(
  reason: string,
  { by = "system", ...options }: UnrecoverableOptions = {},
): FlotillaError {
  return new FlotillaError("aborted", reason, { ...options, details: { unrecoverable: by } });
}

/** Thrown by a transition: the run ends as cancelled. */
export function cancel(reason: string, options?: ErrorOptions): FlotillaError {
  return new FlotillaError("cancelled", reason, { ...options, details: { cancelsRun: true } });
}

/** Classifies a thrown value. Unknown and unreadable ones are retried. Never throws. */
export function classifyThrown(thrown: unknown): Thrown {
  try {
    return classifyKnown(thrown);
  } catch {
    const message = "the thrown value can't be read";
    return { type: "retry", error: { code: "handler_failed", message }, retryAfterMs: 0 };
  }
}

function classifyKnown(thrown: unknown): Thrown {
  const delayMs = snoozeOf(thrown);
  if (delayMs !== undefined) return { type: "snooze", delayMs, message: thrownText(thrown) };
  // The code alone isn't enough: waiting for a cancelled task throws the same code.
  if (detailOf(thrown, "cancelsRun") === true)
    return { type: "cancel", reason: thrownText(thrown) };
  const error = runError(thrown);
  if (finalCodes.includes(error.code)) return { type: "fail", error };
  return { type: "retry", error, retryAfterMs: retryAfterOf(thrown) };
}

export function runError(thrown: unknown): RunError {
  const by = detailOf(thrown, "unrecoverable");
  return { ...thrownError(thrown), ...((by === "system" || by === "user") && { by }) };
}

function detailOf(thrown: unknown, name: string): unknown {
  return thrown instanceof FlotillaError ? thrown.details?.[name] : undefined;
}
