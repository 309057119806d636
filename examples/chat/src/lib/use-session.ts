import type { Session, SessionSnapshot } from "flotilla/client";
import { useClient } from "flotilla/react";
import { useEffect, useMemo, useSyncExternalStore } from "react";

/** One thing about a session: whoever asks is drawn anew only when that changes, not with every word. */
export function useOfSession<Value extends string | boolean | number>(
  sessionId: string,
  choose: (snapshot: SessionSnapshot) => Value,
): Value {
  const session = useSessionOf(sessionId);
  return useSyncExternalStore(session.subscribe, () => choose(session.get()));
}

/** Says that everything which is shown was read, while somebody can see it. */
export function useReading(sessionId: string): void {
  const session = useSessionOf(sessionId);
  useEffect(() => {
    let readSeq = 0;
    const look = () => {
      const { status, lastSeq } = session.get();
      if (status !== "live" || lastSeq <= readSeq || document.hidden) return;
      readSeq = lastSeq;
      // It is only a mark: the next one makes up for one that was lost.
      session.read(lastSeq).catch(() => {});
    };
    const unsubscribe = session.subscribe(look);
    document.addEventListener("visibilitychange", look);
    look();
    return () => {
      unsubscribe();
      document.removeEventListener("visibilitychange", look);
    };
  }, [session]);
}

function useSessionOf(sessionId: string): Session {
  const client = useClient();
  return useMemo(() => client.session(sessionId), [client, sessionId]);
}
