import { messageOf } from "../base/errors.ts";
import { type OutcomeKind, outcomeKinds } from "./learning/sample.ts";
import { type HeadersLike, readLimitHeaders } from "./rate-headers.ts";

/** How a call ended, as far as its caller knows. */
export type CallOutcome = {
  readonly kind: OutcomeKind;
  /** How long the downstream wants no calls. */
  readonly retryAfterMs?: number;
  /** Which limit was met, where the downstream names it: calls per time, or calls at once. */
  readonly limitedBy?: "rate" | "concurrency";
  /** What the call cost in the bucket's unit. */
  readonly used?: number;
};

/** Decides how a call ended, from what it threw or returned. Undefined: the default decides. */
export type Classify = (thing: unknown) => OutcomeKind | CallOutcome | undefined;

/** How far down an error's causes are followed. */
const maxCauseDepth = 5;

/**
 * How a call ended that threw this, or returned this response. Errors that say nothing about the
 * downstream's capacity are `ignored`: a bad request, an abort, an error in the caller's own code.
 */
export function classifyCall(thing: unknown, nowMs: number, own?: Classify): CallOutcome {
  const override = own && classifyByUser(own, thing);
  if (override) return override;
  try {
    return findOutcome(thing, nowMs, 0) ?? { kind: "ignored" };
  } catch {
    // Any value may be thrown, also one whose getters throw.
    return { kind: "ignored" };
  }
}

/** Runs the user's function. If it throws, the default decides, and the permit is released all the same. */
function classifyByUser(own: Classify, thing: unknown): CallOutcome | undefined {
  try {
    const override = own(thing);
    return override === undefined ? undefined : toCallOutcome(override);
  } catch {
    return undefined;
  }
}

/** Whether a call's result is a response, whose status is the outcome. */
export function isResponse(value: unknown): value is { status: number; headers: HeadersLike } {
  try {
    if (!isObject(value) || !isObject(value.headers)) return false;
    return typeof value.status === "number" && typeof value.headers.get === "function";
  } catch {
    // Any value may be returned, also one whose getters throw.
    return false;
  }
}

function classifyStatus(
  status: number,
  headers: HeadersLike | undefined,
  nowMs: number,
): CallOutcome {
  if (status === 429 || status === 529) {
    return { kind: "throttled", ...readLimitHeaders(headers, nowMs) };
  }
  if (status === 503) {
    const limits = readLimitHeaders(headers, nowMs);
    // A 503 with a time to come back is throttling; without one it is a fault.
    if (limits.retryAfterMs !== undefined || limits.limitedBy)
      return { kind: "throttled", ...limits };
  }
  if (status === 408 || status === 504) return { kind: "timeout" };
  if (status >= 500) return { kind: "server_error" };
  return { kind: status >= 400 ? "ignored" : "success" };
}

function findOutcome(thing: unknown, nowMs: number, depth: number): CallOutcome | undefined {
  if (!isObject(thing) || depth > maxCauseDepth) return undefined;
  return (
    outcomeByName(thing, nowMs) ??
    outcomeByStatus(thing, nowMs) ??
    findOutcome(thing.lastError, nowMs, depth + 1) ??
    findOutcome(thing.cause, nowMs, depth + 1)
  );
}

/** Error names of services and libraries, for errors without a status, or with a less specific one. */
const throttling = new Set([
  "ThrottlingException",
  "Throttling",
  "ThrottledException",
  "RequestThrottled",
  "RequestThrottledException",
  "RequestLimitExceeded",
  "TooManyRequestsException",
  "ProvisionedThroughputExceededException",
  "BandwidthLimitExceeded",
  "LimitExceededException",
  "ServiceQuotaExceededException",
  "PriorRequestNotComplete",
  "SlowDown",
  "RateLimitError",
  "rate_limit_error",
  "rate_limit_exceeded",
  "overloaded_error",
  "RESOURCE_EXHAUSTED",
]);

const timeouts = new Set([
  "TimeoutError",
  "APIConnectionTimeoutError",
  "RequestTimeout",
  "RequestTimeoutException",
  "ModelTimeoutException",
  "timeout_error",
  "DEADLINE_EXCEEDED",
  "ETIMEDOUT",
  "ESOCKETTIMEDOUT",
  "UND_ERR_CONNECT_TIMEOUT",
  "UND_ERR_HEADERS_TIMEOUT",
  "UND_ERR_BODY_TIMEOUT",
]);

const faults = new Set([
  "ECONNREFUSED",
  "ECONNRESET",
  "ECONNABORTED",
  "EPIPE",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "UND_ERR_SOCKET",
  "ServiceUnavailableException",
  "InternalServerException",
  "ModelNotReadyException",
  "ModelStreamErrorException",
  "api_error",
  "UNAVAILABLE",
]);

const aborts = new Set(["AbortError", "APIUserAbortError", "ABORT_ERR"]);

function outcomeByName(error: Record<string, unknown>, nowMs: number): CallOutcome | undefined {
  const names = namesOf(error);
  const has = (known: Set<string>) => names.some((name) => known.has(name));
  if (has(aborts)) return { kind: "ignored" };
  if (has(throttling) || hintsAtThrottling(error)) {
    return { kind: "throttled", ...limitedBy(error), ...readLimitHeaders(headersOf(error), nowMs) };
  }
  if (has(timeouts)) return { kind: "timeout" };
  return has(faults) ? { kind: "server_error" } : undefined;
}

function outcomeByStatus(error: Record<string, unknown>, nowMs: number): CallOutcome | undefined {
  const response = isObject(error.response) ? error.response : undefined;
  const metadata = isObject(error.$metadata) ? error.$metadata : undefined;
  const status = [
    error.status,
    error.statusCode,
    response?.status,
    response?.statusCode,
    metadata?.httpStatusCode,
  ].find((each): each is number => typeof each === "number" && each >= 100 && each < 600);
  if (status === undefined) return undefined;
  const outcome = classifyStatus(status, headersOf(error), nowMs);
  return outcome.kind === "throttled" ? { ...limitedBy(error), ...outcome } : outcome;
}

/** The names and codes of an error, and of the response body that it wraps. */
function namesOf(error: Record<string, unknown>): string[] {
  const body = isObject(error.error) ? error.error : undefined;
  const inner = body && isObject(body.error) ? body.error : undefined;
  return [error, body, inner]
    .flatMap((part) => (part ? [part.name, part.code, part.type, part.status] : []))
    .filter((name) => typeof name === "string");
}

/** The AWS SDK marks throttling errors itself. */
function hintsAtThrottling(error: Record<string, unknown>): boolean {
  return isObject(error.$retryable) && error.$retryable.throttling === true;
}

/** Some services name the limit only in the message. */
function limitedBy(error: Record<string, unknown>): Pick<CallOutcome, "limitedBy"> {
  const text = messageOf(error.message ?? "", 1_000);
  if (/concurren/i.test(text)) return { limitedBy: "concurrency" };
  if (/\bper (?:second|minute|hour|day)\b|\b[RT]P[SMD]\b/i.test(text)) return { limitedBy: "rate" };
  return {};
}

/** The headers of a response, or of the response that an error or one of its causes carries. */
export function headersOfAnswer(thing: unknown): HeadersLike | undefined {
  try {
    let each: unknown = thing;
    for (let depth = 0; isObject(each) && depth <= maxCauseDepth; depth++) {
      const found = headersOf(each);
      if (found) return found;
      each = each.lastError ?? each.cause;
    }
    return undefined;
  } catch {
    // Any value may be thrown, also one whose getters throw.
    return undefined;
  }
}

function headersOf(error: Record<string, unknown>): HeadersLike | undefined {
  const response = [error.response, error.$response].find(isObject);
  const found = [error.headers, error.responseHeaders, response?.headers].find(isObject);
  return found as HeadersLike | undefined;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}

const plainOutcomes: ReadonlyMap<unknown, CallOutcome> = new Map(
  outcomeKinds.map((kind) => [kind, { kind }]),
);

/**
 * Normalizes an outcome that a user's code has passed. Undefined where it is none of the kinds. Amounts
 * that aren't finite are left out, because one of them would spoil every sum.
 */
export function toCallOutcome(outcome: OutcomeKind | CallOutcome): CallOutcome | undefined {
  if (typeof outcome !== "object" || outcome === null) return plainOutcomes.get(outcome);
  const { kind, retryAfterMs, used } = outcome;
  if (!plainOutcomes.has(kind)) return undefined;
  if (isAmountIfAny(retryAfterMs) && isAmountIfAny(used)) return outcome;
  const { retryAfterMs: _retryAfterMs, used: _used, ...rest } = outcome;
  return {
    ...rest,
    ...(isAmount(retryAfterMs) && { retryAfterMs }),
    ...(isAmount(used) && { used }),
  };
}

export function isAmount(value: unknown): value is number {
  return Number.isFinite(value) && (value as number) >= 0;
}

const isAmountIfAny = (value: unknown): boolean => value === undefined || isAmount(value);
