import type { InboxEvent, Sink } from "../../sessions/service.ts";
import type { Caller } from "./caller.ts";

/** An inbox as its reader may see it: a token that names the sessions it is good for shows those only. */
export function ownInbox({ sessions: named }: Caller, sink: Sink<InboxEvent>): Sink<InboxEvent> {
  if (!named) return sink;
  return {
    ...sink,
    push(event) {
      if (event.type === "removed") {
        const sessionIds = event.sessionIds.filter((sessionId) => named.has(sessionId));
        return sessionIds.length === 0 || sink.push({ ...event, sessionIds });
      }
      const sessions = event.sessions.filter(({ sessionId }) => named.has(sessionId));
      const isNothing = event.type === "changed" && sessions.length === 0;
      return isNothing || sink.push({ ...event, sessions });
    },
  };
}
