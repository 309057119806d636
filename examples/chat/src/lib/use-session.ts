import type { Session, SessionSnapshot } from "flotilla/client";
import { useClient } from "flotilla/react";
import { useMemo, useSyncExternalStore } from "react";

/** One thing about a session: whoever asks is drawn anew only when that changes, not with every word. */
export function useOfSession<Value extends string | boolean | number>(
  sessionId: string,
  choose: (snapshot: SessionSnapshot) => Value,
): Value {
  const session = useSessionOf(sessionId);
  return useSyncExternalStore(session.subscribe, () => choose(session.get()));
}

export function useSessionOf(sessionId: string): Session {
  const client = useClient();
  return useMemo(() => client.session(sessionId), [client, sessionId]);
}
