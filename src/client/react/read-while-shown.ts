import type { Session } from "../session/session.ts";
import { isShown, usualNetwork } from "../environment.ts";

type Readable = Pick<Session, "get" | "read" | "subscribe">;

/** Marks what a session shows as read, while its page is to be seen. */
export function readWhileShown(session: Readable): () => void {
  let readSeq = 0;
  const look = () => {
    const { status, lastSeq } = session.get();
    if (status !== "live" || lastSeq <= readSeq || !isShown()) return;
    const before = readSeq;
    readSeq = lastSeq;
    // One that is lost is said again with the next change, at the latest when the session is live again.
    session.read(lastSeq).catch(() => {
      if (readSeq === lastSeq) readSeq = before;
    });
  };
  const stop = session.subscribe(look);
  const stopShown = usualNetwork.onChange(look);
  look();
  return () => {
    stop();
    stopShown();
  };
}
