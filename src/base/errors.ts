import { yearMs } from "./durations.ts";

/** Every code that Flotilla throws, stores or sends. One list for code, tables and wire. */
export const errorCodes = [
  "aborted",
  "budget_spent",
  "cancelled",
  "claim_lost",
  "closed",
  "codec_failed",
  "conflict",
  "cursor_expired",
  "dependency_cycle",
  "dependency_failed",
  "duplicate_key",
  "forbidden",
  "handler_failed",
  "internal",
  "invalid_input",
  "invalid_middleware",
  "invalid_option",
  "invalid_output",
  "invalid_schedule",
  "not_committed",
  "not_found",
  "not_owner",
  "overloaded",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
  "pod_died",
  "quota_exceeded",
  "snoozed",
  "step_ambiguous",
  "step_changed",
  "steps_full",
  "store_busy",
  "store_corrupt",
  "store_full",
  "store_missing",
  "store_newer",
  "store_outdated",
  "store_read_only",
  "store_unavailable",
  "suspended",
  "task_failed",
  "throttle_full",
  "throttle_open",
  "timeout",
  "unauthorized",
  "unavailable",
  "unknown_outcome",
  "unsupported",
] as const;

export type ErrorCode = (typeof errorCodes)[number];

/*
 * The groups of codes that decide whether a call is repeated. They are here alone, so that two rooms
 * never disagree about the same error. Each is spelled out: a bundler keeps a list that spreads
 * another, and pages would load all of them.
 */

/** The store is unreachable or too busy. A read is repeated. */
export const storeAwayCodes = ["store_busy", "store_unavailable"] as const;

/**
 * Another writer was in the way, or the answer was lost. A change of what was read before is made
 * again from a new read.
 */
export const contendedCodes = ["store_busy", "unknown_outcome"] as const;

/** The store was busy or unavailable, or its answer was lost. A conditional write is repeated. */
export const transientCodes = [
  "store_busy",
  "store_full",
  "store_unavailable",
  "unknown_outcome",
] as const;

/**
 * For writes that only this pod can make while it lives: the release of an abandoned claim, the
 * outcome of an attempt. Permanent errors are repeated too, because an operator may repair the store.
 */
export const untilStoreRecovers = [
  "store_busy",
  "store_corrupt",
  "store_full",
  "store_missing",
  "store_read_only",
  "store_unavailable",
  "unknown_outcome",
] as const;

/** The whole store failed, so each part of a batch would fail as the batch did. */
export const storeWideCodes = [
  "closed",
  "store_busy",
  "store_corrupt",
  "store_full",
  "store_missing",
  "store_read_only",
  "store_unavailable",
  "unknown_outcome",
] as const;

/** No store can take this value. */
export const unstorableCodes = [
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
] as const;

/** A session's owner answers these only after it has checked whether the client id is stored. */
export const decidedCodes = [
  "conflict",
  "forbidden",
  "invalid_input",
  "not_found",
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
] as const;

/** The log has no owner or a new one, or the owner or its store did not respond. */
export const ownerAwayCodes = [
  "not_owner",
  "store_busy",
  "store_unavailable",
  "timeout",
  "unavailable",
  "unknown_outcome",
] as const;

export type FlotillaErrorOptions = ErrorOptions & {
  /** Facts for programs: which option, which limit, which task. */
  details?: Readonly<Record<string, unknown>>;
  /** For a handler's error: how long to wait before the next attempt. */
  retryAfterMs?: number;
};

/** The one error we throw on purpose. Anything else escaping is a bug. */
export class FlotillaError extends Error {
  override readonly name = "FlotillaError";
  readonly code: ErrorCode;
  readonly details: Readonly<Record<string, unknown>> | undefined;
  readonly retryAfterMs: number | undefined;

  constructor(code: ErrorCode, message: string, options: FlotillaErrorOptions = {}) {
    super(message, options);
    this.code = code;
    this.details = options.details;
    this.retryAfterMs = options.retryAfterMs;
  }
}

/** Thrown by a handler: fail the task now, regardless of remaining attempts. */
export function abort(message: string, options?: ErrorOptions): FlotillaError {
  return new FlotillaError("aborted", message, options);
}

/** Thrown by a handler: retry, but not before `delayMs` have passed. */
export function retryAfter(
  delayMs: number,
  message: string,
  options?: ErrorOptions,
): FlotillaError {
  return new FlotillaError("handler_failed", message, { ...options, retryAfterMs: delayMs });
}

/**
 * Thrown by a handler: there is nothing to do yet, run again in `delayMs`. It is not an attempt, so
 * a handler may snooze without end; `snoozes` holds the count.
 */
export function snooze(delayMs: number, why = "nothing to do yet"): FlotillaError {
  if (typeof delayMs !== "number" || !(delayMs <= yearMs)) {
    throw new FlotillaError(
      "invalid_option",
      `snooze: delayMs must be a number up to ${yearMs}, not ${String(delayMs)}`,
    );
  }
  // A computed moment may be in the past by now: then run at once.
  const snoozeMs = Math.max(0, Math.ceil(delayMs));
  return new FlotillaError("snoozed", why, { details: { snoozeMs } });
}

export function hasCode(error: unknown, ...codes: ErrorCode[]): error is FlotillaError {
  return error instanceof FlotillaError && codes.includes(error.code);
}

/** The message of anything that can be thrown, bounded, because handlers may throw anything. */
export function messageOf(thrown: unknown, maxChars = 4_000): string {
  let text: string;
  try {
    text = String(thrown instanceof Error ? thrown.message || thrown.name : thrown);
  } catch {
    text = "a value that can't be turned into text was thrown";
  }
  return text.length > maxChars ? `${text.slice(0, maxChars)}…` : text;
}

/** For a read whose turn did not come in time, because too many others were before it. */
export function tooManyReads(waitMs: number): FlotillaError {
  const message = `too many reads at once: this one waited ${waitMs} ms for its turn; try again`;
  return new FlotillaError("store_busy", message, { details: { waitMs } });
}
