import { FlotillaError, hasCode, messageOf } from "../../base/errors.ts";
import type { HeadersLike } from "../../throttles/rate-headers.ts";

/** Why an answer is missing or incomplete. Stored with the entry. */
export type FailureCode =
  /** This pod has no agent of that name. */
  | "agent_missing"
  /** It threw, or sent an `error` chunk. */
  | "agent_failed"
  | "agent_unreachable"
  /** Its address is not allowed. */
  | "agent_forbidden"
  /** It responded with a status other than success. */
  | "agent_refused"
  /** Its response is not an answer. */
  | "agent_invalid"
  /** It sent nothing for too long, or took too long in all. */
  | "agent_silent"
  | "agent_late"
  /** It disconnected in the middle. */
  | "agent_died"
  | "answer_too_large"
  /** Its durable calls have used its budget, or it has stored as many steps as it may. */
  | "budget_spent"
  | "steps_full"
  /** It got no permit of its throttle. */
  | "throttled";

export type FailureOptions = ErrorOptions & {
  /** Whether another try may help, as long as no content has arrived. */
  readonly retryable?: boolean;
  readonly retryAfterMs?: number | undefined;
  /** For the throttle to learn from. */
  readonly status?: number;
  readonly headers?: HeadersLike;
};

const limitCodes = ["budget_spent", "steps_full"] as const;
const throttleCodes = new Set(["throttle_full", "throttle_open"]);

/** A failed call of an agent. */
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

/** The agent took too long. The cause lets its throttle learn of it. */
export function timedOut(code: "agent_silent" | "agent_late", message: string): AgentFailure {
  const cause = Object.assign(new Error(message), { name: "TimeoutError" });
  return new AgentFailure(code, message, { retryable: code === "agent_silent", cause });
}

/** The failure that a limit of steps is, whose text has nothing of the agent's own. Undefined for all else. */
export function limitFailureOf(thrown: unknown): AgentFailure | undefined {
  const code = limitCodes.find((each) => hasCode(thrown, each));
  return code && new AgentFailure(code, messageOf(thrown, 300), { cause: thrown });
}

/**
 * Turns any error on the way to an answer into an `AgentFailure`. Errors thrown by code may hold secrets,
 * so only the log gets them; a reason given to `abort` is meant to be read.
 */
export function failureOf(thrown: unknown): AgentFailure {
  if (thrown instanceof AgentFailure) return thrown;
  const limit = limitFailureOf(thrown);
  if (limit) return limit;
  const code = thrown instanceof FlotillaError ? thrown.code : undefined;
  if (code === "aborted") {
    return new AgentFailure("agent_failed", messageOf(thrown, 1_000), { cause: thrown });
  }
  const retryAfterMs = thrown instanceof FlotillaError ? thrown.retryAfterMs : undefined;
  const options = { retryable: true, retryAfterMs, cause: thrown };
  return code !== undefined && throttleCodes.has(code)
    ? new AgentFailure(
        "throttled",
        "the agent's throttle is full right now: try again later",
        options,
      )
    : new AgentFailure("agent_failed", "the agent failed", options);
}
