import type { ErrorCode } from "../base/errors.ts";

/** Why a request is refused: a status, and a code for programs. */
export type Refusal = {
  readonly ok: false;
  readonly status: 400 | 401 | 405 | 413 | 500 | 503;
  readonly code: ErrorCode;
  readonly message: string;
};

export function createRefusal(
  status: Refusal["status"],
  code: ErrorCode,
  message: string,
): Refusal {
  return { ok: false, status, code, message };
}

/** The response for a refusal, in Flotilla's error format. */
export function refuse({ status, code, message }: Refusal): Response {
  return new Response(JSON.stringify({ error: { code, message, details: {} } }), {
    status,
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      ...(status === 405 && { allow: "POST" }),
    },
  });
}
