import type { Context } from "hono";
import { HTTPException } from "hono/http-exception";
import type { ContentfulStatusCode } from "hono/utils/http-status";
import { type ErrorCode, FlotillaError, messageOf } from "../base/errors.ts";
import type { Logger } from "../base/log.ts";

/** What every refusal looks like on the wire. */
export type ErrorBody = {
  readonly error: {
    readonly code: ErrorCode;
    readonly message: string;
    readonly details: Readonly<Record<string, unknown>>;
  };
};

const statuses: Readonly<Record<ErrorCode, ContentfulStatusCode>> = {
  aborted: 500,
  cancelled: 409,
  claim_lost: 409,
  closed: 503,
  conflict: 409,
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
  throttle_full: 503,
  throttle_open: 503,
  timeout: 504,
  unauthorized: 401,
  unavailable: 503,
  unknown_outcome: 503,
  unsupported: 415,
};

export function statusOf(code: ErrorCode): ContentfulStatusCode {
  return statuses[code];
}

/** Answers with an error. What wasn't thrown on purpose is logged, and not shown to the caller. */
export function refuse(c: Context, thrown: unknown, log: Logger): Response {
  const error = ours(thrown);
  const status = statusOf(error.code);
  if (status >= 500) {
    const { method, path } = c.req;
    log.error({ method, path, code: error.code, error: messageOf(thrown) }, "a request failed");
  }
  if (status === 503) c.header("Retry-After", "1");
  if (status === 401) c.header("WWW-Authenticate", "Bearer");
  const { code, message, details = {} } = error;
  return c.json({ error: { code, message, details } } satisfies ErrorBody, status);
}

function ours(thrown: unknown): FlotillaError {
  if (thrown instanceof FlotillaError) return thrown;
  if (thrown instanceof HTTPException && thrown.status < 500) {
    return new FlotillaError("invalid_input", thrown.message || "the request makes no sense");
  }
  return new FlotillaError("internal", "something went wrong; the server's log says what");
}
