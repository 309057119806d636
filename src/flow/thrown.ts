import { FlotillaError, messageOf } from "../base/errors.ts";
import { snoozeOf } from "../queue/snooze.ts";
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

const stackChars = 4_000;
const retryAfterMostMs = 7 * 24 * 60 * 60_000;

/** Errors for which another attempt could only end the same way. */
const finalCodes: readonly string[] = [
  "aborted",
  "invalid_input",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
];

/** Sorts whatever was thrown. What isn't known is tried again. */
export function classify(thrown: unknown): Thrown {
  const delayMs = snoozeOf(thrown);
  if (delayMs !== undefined) return { type: "snooze", delayMs, message: textOf(thrown) };
  // The code alone isn't enough: to wait for a task that somebody has cancelled throws the same.
  if (detailOf(thrown, "cancelsRun") === true) return { type: "cancel", reason: textOf(thrown) };
  const error = runError(thrown);
  if (finalCodes.includes(error.code)) return { type: "fail", error };
  return { type: "retry", error, retryAfterMs: retryAfterOf(thrown) };
}

export function runError(thrown: unknown): RunError {
  const code = thrown instanceof FlotillaError ? thrown.code : "handler_failed";
  const stack = thrown instanceof Error ? fieldOf(thrown, "stack") : undefined;
  const by = detailOf(thrown, "unrecoverable");
  return {
    code,
    message: textOf(thrown),
    ...((by === "system" || by === "user") && { by }),
    ...(typeof stack === "string" && stack && { stack: storable(stack.slice(0, stackChars)) }),
  };
}

function detailOf(thrown: unknown, name: string): unknown {
  return thrown instanceof FlotillaError ? thrown.details?.[name] : undefined;
}

function retryAfterOf(thrown: unknown): number {
  const asked = fieldOf(thrown, "retryAfterMs");
  return typeof asked === "number" && asked > 0 ? Math.min(Math.round(asked), retryAfterMostMs) : 0;
}

/** Functions throw everything, also objects that throw when they are looked at. */
function fieldOf(thrown: unknown, field: string): unknown {
  try {
    return (thrown as Readonly<Record<string, unknown>> | null | undefined)?.[field];
  } catch {
    return undefined;
  }
}

function textOf(thrown: unknown): string {
  return storable(messageOf(thrown));
}

/** A lone surrogate or U+0000 in a message would make the write that carries it unstorable. */
function storable(text: string): string {
  return text.toWellFormed().replaceAll("\u0000", "\uFFFD");
}
