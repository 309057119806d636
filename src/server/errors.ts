import type { Context } from "hono";
import { HTTPException } from "hono/http-exception";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import type { Clock } from "../base/clock.ts";
import { type ErrorCode, FlotillaError, messageOf } from "../base/errors.ts";
import { isJsonObject } from "../base/json.ts";
import type { Logger } from "../base/log.ts";
import { sharedRedactor } from "../redaction/redactor.ts";

/** The body of every error response. */
export type ErrorBody = {
  readonly error: {
    readonly code: ErrorCode;
    readonly message: string;
    readonly details: Readonly<Record<string, unknown>>;
  };
};

/** Answers with an error. An unexpected error is logged, and its message isn't shown to the caller. */
export type ErrorResponder = (c: Context, thrown: unknown) => Response;

type RefusalParts = { log: Logger; clock: Clock };

// A flood of requests must not become a flood of log lines.
const logEveryMs = 10_000;

const statuses: Readonly<Record<ErrorCode, ContentfulStatusCode>> = {
  aborted: 500,
  budget_spent: 500,
  cancelled: 409,
  claim_lost: 409,
  closed: 503,
  codec_failed: 503,
  conflict: 409,
  cursor_expired: 410,
  dependency_cycle: 400,
  dependency_failed: 500,
  duplicate_key: 409,
  forbidden: 403,
  handler_failed: 500,
  internal: 500,
  invalid_input: 400,
  invalid_middleware: 500,
  invalid_option: 400,
  invalid_output: 500,
  invalid_schedule: 400,
  not_committed: 500,
  not_found: 404,
  not_owner: 503,
  overloaded: 503,
  payload_not_storable: 400,
  payload_too_deep: 400,
  payload_too_large: 413,
  pod_died: 500,
  quota_exceeded: 429,
  snoozed: 500,
  store_busy: 503,
  store_corrupt: 503,
  store_full: 503,
  store_missing: 503,
  store_newer: 503,
  store_outdated: 503,
  store_read_only: 503,
  store_unavailable: 503,
  task_failed: 500,
  step_ambiguous: 500,
  step_changed: 409,
  steps_full: 500,
  suspended: 500,
  throttle_full: 503,
  throttle_open: 503,
  timeout: 504,
  unauthorized: 401,
  unavailable: 503,
  unknown_outcome: 503,
  unsupported: 415,
};

const publicMessages: Readonly<Partial<Record<ErrorCode, string>>> = {
  internal: "internal error: see the server's log",
  store_busy: "the store is busy: try again soon",
  store_full: "the store has no room left: free some, or see the server's log",
  store_newer: "the store's schema is newer than this server can work with: update flotilla",
  store_outdated: "the store's schema is older than this server needs: run `flotilla migrate`",
  store_read_only: "the store is read-only right now: try again, or see the server's log",
  store_unavailable: "the store is unreachable right now: try again, or see the server's log",
  unknown_outcome:
    "the store didn't answer, so it is unknown whether this was done: check before you repeat it",
};

const logged = new WeakSet<Error>();

/** Marks an error whose line is in the log already, so that each request adds none. */
export function asLogged(error: FlotillaError): FlotillaError {
  logged.add(error);
  return error;
}

export function isLogged(thrown: unknown): boolean {
  return thrown instanceof Error && logged.has(thrown);
}

export function createErrorResponder(parts: RefusalParts): ErrorResponder {
  const { log } = parts;
  const count = createRefusalCounter(parts);

  return (c, thrown) => {
    const error = toFlotillaError(thrown);
    const { code, details = {} } = error;
    const status = statusOf(code, details);
    if (isOverloadCode(code)) count(code);
    // A stopping server refuses requests, and its callers use another one. That credentials can't be checked
    // is logged once where they are read: callers that are unknown must not fill the log.
    else if (status >= 500 && code !== "closed" && !isUnchecked(c, code) && !isLogged(thrown)) {
      const { method } = c.req;
      // An access to files is a credential.
      const path = c.req.path.replace(/(?<=\/v1\/files\/)[^/]+/, "…");
      log.error({ method, path, code, error: messageOf(thrown) }, "request failed");
    }
    if (isWaitedFor(status)) c.header("Retry-After", retryAfterHeader(error));
    if (status === 405) c.header("Allow", String(details["allow"]));
    if (status === 401) c.header("WWW-Authenticate", "Bearer");
    return c.json(
      { error: { code, ...publicErrorOf(error, details) } } satisfies ErrorBody,
      status,
    );
  };
}

/** Whether the request was refused before its caller was known, because that couldn't be checked. */
function isUnchecked(c: Context, code: ErrorCode): boolean {
  return code === "unavailable" && c.get("caller") === undefined;
}

/** Logs refusals by a limit, counted by code. */
export function createRefusalCounter({ log, clock }: RefusalParts): (code: ErrorCode) => void {
  const counts = new Map<ErrorCode, { refused: number; loggedMs: number }>();

  return (code) => {
    const entry = counts.get(code) ?? { refused: 0, loggedMs: -Infinity };
    counts.set(code, entry);
    entry.refused++;
    const nowMs = clock.monotonic();
    if (nowMs - entry.loggedMs < logEveryMs) return;
    log.warn({ code, refused: entry.refused }, "requests refused by limits");
    Object.assign(entry, { refused: 0, loggedMs: nowMs });
  };
}

/**
 * The status of an error. A quota of the caller's tenant is no trouble of the server, and a path that only
 * takes other methods names them.
 */
export function statusOf(
  code: ErrorCode,
  details: Readonly<Record<string, unknown>> = {},
): ContentfulStatusCode {
  if (code === "unsupported" && details["allow"] !== undefined) return 405;
  return code === "overloaded" && details["quota"] !== undefined ? 429 : statuses[code];
}

/** Whether the answer says after which time the request may be sent again. */
export function isWaitedFor(status: number): boolean {
  return status === 503 || status === 429;
}

const limitCodes: ReadonlySet<ErrorCode> = new Set([
  "overloaded",
  "quota_exceeded",
  "throttle_full",
  "throttle_open",
]);

/** Whether a limit has refused the request. */
export function isOverloadCode(code: ErrorCode): boolean {
  return limitCodes.has(code);
}

/**
 * The part of an error that callers see. The store's address and messages stay in the server's log. Others
 * may quote what a caller has sent, so they have no secrets either.
 */
export function publicErrorOf(
  { code, message }: Pick<FlotillaError, "code" | "message">,
  details: Readonly<Record<string, unknown>> = {},
): Pick<ErrorBody["error"], "message" | "details"> {
  const isOfStore = code.startsWith("store_") || publicMessages[code] !== undefined;
  if (!isOfStore) {
    const left = sharedRedactor.value(details, "error");
    return { message: sharedRedactor.text(message), details: isJsonObject(left) ? left : {} };
  }
  return {
    message: publicMessages[code] ?? "the store can't be used: see the server's log",
    details: {},
  };
}

/** The value of the header Retry-After, in whole seconds. */
export function retryAfterHeader({
  retryAfterMs = 1_000,
}: {
  readonly retryAfterMs?: number | undefined;
}): string {
  return String(Math.max(1, Math.ceil(retryAfterMs / 1_000)));
}

function toFlotillaError(thrown: unknown): FlotillaError {
  if (thrown instanceof FlotillaError) return thrown;
  if (thrown instanceof HTTPException && thrown.status < 500) {
    return new FlotillaError("invalid_input", thrown.message || "the request is malformed");
  }
  return new FlotillaError("internal", messageOf(thrown));
}
