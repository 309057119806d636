import { FlotillaError } from "../../base/errors.ts";
import {
  finalCodes,
  retryAfterOf,
  snoozeOf,
  thrownError,
  thrownText,
} from "../../tasks/finish/outcome.ts";
import type { RunError } from "./run.ts";

/** What it means for a run that one of its functions threw. */
export type Thrown =
  /** Tried again, after the backoff and not before `retryAfterMs`, until attempts run out. */
  | { readonly type: "retry"; readonly error: RunError; readonly retryAfterMs: number }
  /** Trying again would be in vain: the run fails now. */
  | { readonly type: "fail"; readonly error: RunError }
  | { readonly type: "cancel"; readonly reason: string }
  /** There is nothing to do yet. It isn't an attempt. */
  | { readonly type: "snooze"; readonly delayMs: number; readonly message: string };

export type UnrecoverableOptions = ErrorOptions & {
  /** Whose fault it is: something around us, or what the user has asked for. Default `system`. */
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

/** Sorts whatever was thrown. What isn't known, or can't even be looked at, is tried again. Never throws. */
export function classifyThrown(thrown: unknown): Thrown {
  try {
    return classifyKnown(thrown);
  } catch {
    const message = "something was thrown that can't be looked at";
    return { type: "retry", error: { code: "handler_failed", message }, retryAfterMs: 0 };
  }
}

function classifyKnown(thrown: unknown): Thrown {
  const delayMs = snoozeOf(thrown);
  if (delayMs !== undefined) return { type: "snooze", delayMs, message: thrownText(thrown) };
  // The code alone isn't enough: to wait for a task that somebody has cancelled throws the same.
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
