import type { Clock } from "../base/clock.ts";
import { type ErrorCode, FlotillaError, messageOf } from "../base/errors.ts";
import type { ClientOptions, Fetch } from "./options.ts";

/**
 * Sends a request. Rejects with a `FlotillaError` where it isn't answered successfully; with
 * `unknown_outcome` where it may have been performed all the same.
 */
export type Http = <Answer>(method: Method, path: string, request?: Request) => Promise<Answer>;

type Request = {
  query?: Readonly<Record<string, string | number | undefined>> | undefined;
  body?: unknown;
  /** In place of a body as JSON: bytes, with their type. */
  blob?: Blob;
  timeoutMs?: number;
};

type Method = "GET" | "POST" | "PUT" | "DELETE";

type HttpParts = {
  fetch: Fetch;
  /** The server's URL. */
  url: () => string;
  credentials: ClientCredentials;
  user?: string | undefined;
  tenant?: string | undefined;
  clock: Clock;
  /** How long an answer may take. */
  answerTimeoutMs?: number;
};

/** The client's token, and how it is renewed. */
export type ClientCredentials = {
  readonly isRenewable: boolean;
  /** The current token, or else a new one. */
  current(): Promise<string | undefined>;
  /** A new token. Concurrent calls share one request. */
  fresh(): Promise<string | undefined>;
  /** Forgets a refused token, unless there is another already. */
  forget(token: string | undefined): void;
};

type Answered = { readonly response: Response; readonly text: string };
type Refusal = { code: string; message: string; details?: Record<string, unknown> };

export function createHttp({
  fetch: call,
  url,
  credentials,
  user,
  tenant,
  clock,
  answerTimeoutMs = 30_000,
}: HttpParts): Http {
  const send = async (
    method: Method,
    path: string,
    { query = {}, body, blob, timeoutMs = answerTimeoutMs }: Request,
    token: string | undefined,
  ): Promise<Answered> => {
    const address = new URL(url() + path);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) address.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = {};
    if (token !== undefined) headers["authorization"] = `Bearer ${token}`;
    for (const [name, value] of Object.entries({ user, tenant })) {
      if (value !== undefined) headers[`flotilla-${name}`] = encodeURIComponent(value);
    }
    if (body !== undefined) headers["content-type"] = "application/json";
    const timeout = new AbortController();
    const cancel = clock.after(timeoutMs, () => timeout.abort(new Error("timed out")));
    try {
      const response = await call(address.href, {
        method,
        headers,
        signal: timeout.signal,
        // `JSON.stringify(undefined)` is undefined: no body.
        body: blob ?? JSON.stringify(body),
      });
      // Read the body here, so that the timeout covers it.
      return { response, text: await response.text() };
    } catch (error) {
      const message = `no answer from ${address.origin}: ${messageOf(error)}`;
      throw new FlotillaError(unansweredCode(method), message, { cause: error });
    } finally {
      cancel();
    }
  };

  return async <Answer>(method: Method, path: string, request: Request = {}) => {
    const token = await credentials.current();
    let answered = await send(method, path, request, token);
    if (answered.response.status === 401 && credentials.isRenewable) {
      credentials.forget(token);
      answered = await send(method, path, request, await credentials.current());
    }
    return parseAnswer(method, answered) as Answer;
  };
}

export function createClientCredentials(token: ClientOptions["token"]): ClientCredentials {
  if (typeof token !== "function") {
    const fixed = () => Promise.resolve(token);
    return { isRenewable: false, current: fixed, fresh: fixed, forget() {} };
  }
  let pending: Promise<string> | undefined;
  let known: string | undefined;

  const fetchToken = async (): Promise<string> => (known = await token());
  const fresh = () =>
    (pending ??= fetchToken().finally(() => {
      pending = undefined;
    }));

  return {
    isRenewable: true,
    fresh,
    current: () => (known === undefined ? fresh() : Promise.resolve(known)),
    forget(refused) {
      if (known === refused) known = undefined;
    },
  };
}

/**
 * The error of a server's answer. A newer server may send a code that this release doesn't know, and another
 * program at its URL values of other types.
 */
export function errorFromWire(wire: {
  readonly code: string;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
  readonly retryAfterMs?: number;
}): FlotillaError {
  const { code, message, ...rest } = wire;
  const known = typeof code === "string" ? code : "unavailable";
  return new FlotillaError(known as ErrorCode, `${message}`, rest);
}

/** Any thrown value as a FlotillaError: the application's token function may throw anything. */
export function asError(thrown: unknown): FlotillaError {
  if (thrown instanceof FlotillaError) return thrown;
  return new FlotillaError("unavailable", messageOf(thrown), { cause: thrown });
}

/** The code where the server's own answer is missing: a change that wasn't refused may be done. */
const unansweredCode = (method: Method, status = 0): ErrorCode =>
  method === "GET" || (status >= 400 && status < 500) ? "unavailable" : "unknown_outcome";

function parseAnswer(method: Method, { response, text }: Answered): unknown {
  const { ok, status, url } = response;
  let answer: { readonly error?: Partial<Refusal> } | undefined;
  try {
    answer = JSON.parse(text) as typeof answer;
    if (ok) return answer;
  } catch {
    // A proxy in between answers in another format.
  }
  const refusal = answer?.error;
  throw errorFromWire({
    ...(typeof refusal?.code === "string"
      ? (refusal as Refusal)
      : {
          code: unansweredCode(method, status),
          message: `${url} answered ${status}`,
          details: { status },
        }),
    retryAfterMs: (Math.max(0, +response.headers.get("retry-after")! * 1_000) ||
      undefined) as number,
  });
}
