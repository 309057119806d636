import { FlotillaError } from "../../base/errors.ts";
import type { SessionEvent, SessionView, Sent } from "../../sessions/service.ts";
import { causeOf, errorOf, queryOf, type Server } from "../server.ts";
import { eventsIn } from "./event-stream.ts";
import type { ChatService } from "./chat.ts";

/** A conversation as a server offers it. The tenant is what the key or the token says. */
export function chatOverHttp({ ask, json }: Server): ChatService {
  const at = (sessionId: string) => `sessions/${encodeURIComponent(sessionId)}`;

  return {
    create: (_, input) => json<SessionView>("POST", "sessions", input),
    get: (_, sessionId) => json<SessionView>("GET", at(sessionId)),
    send: (_, sessionId, { id, parts }) =>
      json<Sent>("POST", `${at(sessionId)}/messages`, { id, parts }),
    async stop(_, sessionId) {
      return (await json<{ done: boolean }>("POST", `${at(sessionId)}/stop`)).done;
    },
    join(_, sessionId, place, sink) {
      const over = new AbortController();
      const { lastSeq, incarnation, lastMessageId } = place;
      const query = queryOf({ lastSeq, incarnation, lastMessageId });
      const follow = async (): Promise<void> => {
        const { signal } = over;
        const answer = await ask("GET", `${at(sessionId)}/events${query}`, { signal });
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
