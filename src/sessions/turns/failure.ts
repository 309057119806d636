import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { HeadersLike } from "../../throttles/rate-headers.ts";

/** Why there is no answer, or only the beginning of one. Stored with the entry. */
export type FailureCode =
  /** Nobody of that name is known here. */
  | "agent_missing"
  /** It threw, or said itself that something went wrong. */
  | "agent_failed"
  | "agent_unreachable"
  /** It is somewhere it must not be. */
  | "agent_forbidden"
  /** It answered with another status than 200. */
  | "agent_refused"
  /** What it answered isn't an answer. */
  | "agent_invalid"
  /** It said nothing for too long, or took too long in all. */
  | "agent_silent"
  | "agent_late"
  /** It went away in the middle. */
  | "agent_died"
  | "answer_too_large"
  /** There was no permit for it. */
  | "throttled";

export type FailureOptions = ErrorOptions & {
  /** Whether asking again might help, as long as nothing of an answer has come. */
  readonly retryable?: boolean;
  readonly retryAfterMs?: number | undefined;
  /** What its throttle learns from. */
  readonly status?: number;
  readonly headers?: HeadersLike;
};

/** How a call of an agent went wrong. */
export class AgentFailure extends Error {
  override readonly name = "AgentFailure";
  readonly code: FailureCode;
  readonly retryable: boolean;
  readonly retryAfterMs: number | undefined;
  readonly status: number | undefined;
  readonly headers: HeadersLike | undefined;

  constructor(code: FailureCode, message: string, options: FailureOptions = {}) {
    super(message, options);
    this.code = code;
    this.retryable = options.retryable ?? false;
    this.retryAfterMs = options.retryAfterMs;
    this.status = options.status;
    this.headers = options.headers;
  }
}

/** It took too long; its throttle is to know that as well. */
export function timedOut(code: "agent_silent" | "agent_late", message: string): AgentFailure {
  const cause = Object.assign(new Error(message), { name: "TimeoutError" });
  return new AgentFailure(code, message, { retryable: code === "agent_silent", cause });
}

const throttleCodes = new Set(["throttle_full", "throttle_open"]);

/**
 * Whatever was thrown on the way to an answer, as one of these. What code throws may tell users what is
 * none of their business, so only the log gets it; a reason given to `abort` is meant to be read.
 */
export function failureOf(thrown: unknown): AgentFailure {
  if (thrown instanceof AgentFailure) return thrown;
  const code = thrown instanceof FlotillaError ? thrown.code : undefined;
  if (code === "aborted") {
    return new AgentFailure("agent_failed", messageOf(thrown, 1_000), { cause: thrown });
  }
  const retryAfterMs = thrown instanceof FlotillaError ? thrown.retryAfterMs : undefined;
  const options = { retryable: true, retryAfterMs, cause: thrown };
  return code !== undefined && throttleCodes.has(code)
    ? new AgentFailure("throttled", "too much is asked of the agent right now", options)
    : new AgentFailure("agent_failed", "the agent failed", options);
}
