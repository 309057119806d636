import { useMemo } from "react";
import type { Client } from "../client.ts";
import type { Session, SessionSnapshot } from "../session/session.ts";
import { useClient } from "./provider.ts";
import { useOpened, useStore } from "./use-store.ts";

export type UsedSession = SessionSnapshot &
  Pick<Session, "sessionId" | "send" | "stop" | "regenerate" | "toolResult" | "read">;

const unknown: SessionSnapshot = {
  status: "idle",
  messages: [],
  unsent: [],
  state: { state: "idle" },
  lastSeq: 0,
};
const open = (client: Client, sessionId: string) => client.session(sessionId);

/** A session as it is now, followed while the component is there. */
export function useSession(sessionId: string, options: { client?: Client } = {}): UsedSession {
  const client = useClient(options.client);
  const snapshot = useStore(useOpened(open, client, sessionId), unknown);
  const verbs = useMemo(() => verbsOf(client, sessionId), [client, sessionId]);
  return useMemo(() => ({ ...snapshot, ...verbs }), [snapshot, verbs]);
}

/** The same functions for as long as the session is the same, so that effects may depend on them. */
function verbsOf(client: Client, sessionId: string): Omit<UsedSession, keyof SessionSnapshot> {
  const session = () => client.session(sessionId);
  return {
    sessionId,
    send: (...args) => session().send(...args),
    stop: (...args) => session().stop(...args),
    regenerate: (...args) => session().regenerate(...args),
    toolResult: (...args) => session().toolResult(...args),
    read: (...args) => session().read(...args),
  };
}
