import type { ErrorCode } from "../base/errors.ts";

/** Why a request isn't answered, as a status and as a word for programs. */
export type Refusal = {
  readonly ok: false;
  readonly status: 400 | 401 | 405 | 413 | 500;
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

/** A refusal as it is sent, in the form of all of Flotilla's. */
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
