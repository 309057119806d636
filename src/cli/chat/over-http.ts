import { errorCodes, type ErrorCode, FlotillaError, messageOf } from "../../base/errors.ts";
import type { SessionEvent, SessionView, Sent } from "../../session/service.ts";
import { eventsIn } from "./event-stream.ts";
import type { ChatService } from "./talk.ts";

export type HttpOptions = {
  /** Of a server, such as `http://localhost:8080`. */
  url: string;
  /** A key of the server, or a user's token. */
  key?: string;
  /** Whom a key acts for. */
  user?: string;
  tenant?: string;
  fetch: typeof fetch;
};

/** Sessions as a server offers them. The tenant is what the key or the token says. */
export function sessionsOverHttp(options: HttpOptions): ChatService {
  const { url, key, user, tenant } = options;
  const headers = {
    ...(key !== undefined && { Authorization: `Bearer ${key}` }),
    ...(user !== undefined && { "Flotilla-User": encodeURIComponent(user) }),
    ...(tenant !== undefined && { "Flotilla-Tenant": encodeURIComponent(tenant) }),
  };

  const ask = async (method: string, path: string, init: RequestInit = {}): Promise<Response> => {
    let answer: Response;
    try {
      answer = await options.fetch(new URL(`/v1/${path}`, url), {
        ...init,
        method,
        redirect: "error",
        headers: { ...headers, ...(init.body != null && { "Content-Type": "application/json" }) },
      });
    } catch (error) {
      throw new FlotillaError("unavailable", `the server can't be reached: ${causeOf(error)}`, {
        cause: error,
      });
    }
    if (!answer.ok) throw await refusalOf(answer);
    return answer;
  };

  const json = async <Body>(method: string, path: string, body?: unknown): Promise<Body> => {
    const answer = await ask(
      method,
      path,
      body === undefined ? {} : { body: JSON.stringify(body) },
    );
    try {
      return (await answer.json()) as Body;
    } catch (error) {
      throw new FlotillaError("unavailable", "the server's answer was cut off", { cause: error });
    }
  };

  const at = (sessionId: string) => `sessions/${encodeURIComponent(sessionId)}`;

  return {
    create: (_, input) => json<SessionView>("POST", "sessions", input),
    get: (_, sessionId) => json<SessionView>("GET", at(sessionId)),
    send: (_, sessionId, { id, parts }) =>
      json<Sent>("POST", `${at(sessionId)}/messages`, { id, parts }),
    async stop(_, sessionId) {
      return (await json<{ done: boolean }>("POST", `${at(sessionId)}/stop`)).done;
    },
    join(_, sessionId, { lastSeq, incarnation, lastMessageId }, sink) {
      const over = new AbortController();
      const query = new URLSearchParams({
        lastSeq: String(lastSeq),
        ...(incarnation !== undefined && { incarnation }),
        ...(lastMessageId !== undefined && { lastMessageId }),
      });
      const follow = async (): Promise<void> => {
        const { signal } = over;
        const answer = await ask("GET", `${at(sessionId)}/events?${query.toString()}`, { signal });
        for await (const { type, data } of eventsIn(answer.body ?? [])) {
          const said = JSON.parse(data) as object;
          if (type === "error") throw errorOf(said);
          if (!sink.push({ ...said, type } as SessionEvent)) return;
        }
        throw new FlotillaError("unavailable", "the server has ended the stream");
      };
      const ready = follow().catch((error: unknown) => {
        if (over.signal.aborted) return;
        const told =
          error instanceof FlotillaError
            ? error
            : new FlotillaError("unavailable", causeOf(error), { cause: error });
        sink.fail(told);
      });
      return { ready, leave: () => over.abort() };
    },
  };
}

async function refusalOf(answer: Response): Promise<FlotillaError> {
  try {
    return errorOf(((await answer.json()) as { error: object }).error);
  } catch {
    const code = answer.status >= 500 || answer.status === 429 ? "unavailable" : "unsupported";
    return new FlotillaError(
      code,
      `the server answered ${answer.status}, and not as Flotilla does`,
    );
  }
}

function errorOf(given: object): FlotillaError {
  const { code, message, details } = given as {
    code?: ErrorCode;
    message?: unknown;
    details?: Record<string, unknown>;
  };
  const known = errorCodes.find((each) => each === code) ?? "unavailable";
  return new FlotillaError(known, String(message), details ? { details } : {});
}

/** `fetch` says what really happened one level down. */
function causeOf(error: unknown): string {
  return messageOf(error instanceof Error && error.cause ? error.cause : error, 200);
}
