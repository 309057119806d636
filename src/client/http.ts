import type { Clock } from "../base/clock.ts";
import { type ErrorCode, FlotillaError, messageOf } from "../base/errors.ts";
import type { ClientOptions, Fetch } from "./options.ts";

type Request = {
  query?: Readonly<Record<string, string | number | undefined>> | undefined;
  body?: unknown;
};

/**
 * Asks the server over HTTP. What isn't answered well rejects with a `FlotillaError`: what may have been
 * done all the same with `unknown_outcome`.
 */
export type Http = <Answer>(method: Method, path: string, request?: Request) => Promise<Answer>;

type Method = "GET" | "POST" | "PUT" | "DELETE";

type HttpParts = {
  fetch: Fetch;
  /** Where the server is. */
  url: () => string;
  credentials: ClientCredentials;
  user?: string | undefined;
  tenant?: string | undefined;
  clock: Clock;
};

const answerTimeoutMs = 30_000;

export function createHttp({
  fetch: call,
  url,
  credentials,
  user,
  tenant,
  clock,
}: HttpParts): Http {
  const send = async (
    method: Method,
    path: string,
    { query = {}, body }: Request,
    token: string | undefined,
  ): Promise<Answered> => {
    const address = new URL(url() + path);
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined) address.searchParams.set(name, String(value));
    }
    const headers: Record<string, string> = {};
    if (token !== undefined) headers["authorization"] = `Bearer ${token}`;
    if (user !== undefined) headers["flotilla-user"] = encodeURIComponent(user);
    if (tenant !== undefined) headers["flotilla-tenant"] = encodeURIComponent(tenant);
    if (body !== undefined) headers["content-type"] = "application/json";
    const timeout = new AbortController();
    const cancel = clock.after(answerTimeoutMs, () => timeout.abort(new Error("it took too long")));
    try {
      const response = await call(address.href, {
        method,
        headers,
        signal: timeout.signal,
        // Of nothing, it makes nothing.
        body: JSON.stringify(body),
      });
      // Read here, so that the time counts for all of it.
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

/** The code where no answer of the server came: what isn't a read and wasn't refused may be done. */
const unansweredCode = (method: Method, status = 0): ErrorCode =>
  method === "GET" || (status >= 400 && status < 500) ? "unavailable" : "unknown_outcome";

type Answered = { readonly response: Response; readonly text: string };
type Refusal = { code: string; message: string; details?: Record<string, unknown> };

function parseAnswer(method: Method, { response, text }: Answered): unknown {
  const { ok, status, url } = response;
  let answer: { readonly error?: Partial<Refusal> } | undefined;
  try {
    answer = JSON.parse(text) as typeof answer;
    if (ok) return answer;
  } catch {
    // Whatever stands between answers in its own words.
  }
  const refusal = answer?.error;
  const code = unansweredCode(method, status);
  throw errorFromWire({
    ...(refusal?.code
      ? (refusal as Refusal)
      : { code, message: `${url} answered ${status}`, details: { status } }),
    retryAfterMs: (Math.max(0, Number(response.headers.get("retry-after")) * 1_000) ||
      undefined) as number,
  });
}

/** An error as servers tell it. The code of a newer one may be none that is known here. */
export function errorFromWire(wire: {
  readonly code: string;
  readonly message: string;
  readonly details?: Readonly<Record<string, unknown>>;
  readonly retryAfterMs?: number;
}): FlotillaError {
  const { code, message, ...rest } = wire;
  return new FlotillaError(code as ErrorCode, message, rest);
}

/** What was thrown, as an error of ours: a program's own function for tokens may throw anything. */
export function asError(thrown: unknown): FlotillaError {
  if (thrown instanceof FlotillaError) return thrown;
  return new FlotillaError("unavailable", messageOf(thrown), { cause: thrown });
}

/** The token that the client has, and how it gets another. */
export type ClientCredentials = {
  readonly isRenewable: boolean;
  /** The one that there is, or else a new one. */
  current(): Promise<string | undefined>;
  /** A new one, whatever there is. Asked for at the same time, it is the same. */
  fresh(): Promise<string | undefined>;
  /** Forgets the one that was refused, unless there is another already. */
  forget(token: string | undefined): void;
};

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
