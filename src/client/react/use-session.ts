import { useMemo } from "react";
import type { Client } from "../client.ts";
import type { Session, SessionSnapshot } from "../session.ts";
import { useClient } from "./provider.ts";
import { useStore } from "./use-store.ts";

export type UsedSession = SessionSnapshot &
  Pick<Session, "sessionId" | "send" | "stop" | "regenerate" | "toolResult" | "read">;

const unknown: SessionSnapshot = {
  status: "idle",
  messages: [],
  unsent: [],
  state: { state: "idle" },
  lastSeq: 0,
};

/** A session as it is now, followed while the component is there. */
export function useSession(sessionId: string, options: { client?: Client } = {}): UsedSession {
  const client = useClient(options.client);
  const session = useMemo(() => client.session(sessionId), [client, sessionId]);
  const snapshot = useStore(session, unknown);
  return useMemo(() => {
    const { send, stop, regenerate, toolResult, read } = session;
    return { ...snapshot, sessionId, send, stop, regenerate, toolResult, read };
  }, [session, sessionId, snapshot]);
}
