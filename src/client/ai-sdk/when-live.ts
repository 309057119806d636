import { FlotillaError } from "../../base/errors.ts";
import type { Session, SessionSnapshot } from "../session/session.ts";

/** Waits until all of a session is here, and gives it. Rejects where there is none, unless `orGone`. */
export function whenLive(
  session: Session,
  signal: AbortSignal | undefined,
  { orGone = false } = {},
): Promise<SessionSnapshot> {
  return new Promise((resolve, reject) => {
    let leave: (() => void) | undefined;
    const end = (settle: () => void): void => {
      signal?.removeEventListener("abort", onAbort);
      settle();
      leave?.();
    };
    const onAbort = () => end(() => reject(abortError()));
    const look = (): void => {
      const snapshot = session.get();
      const { status, error } = snapshot;
      if (status === "live" || (status === "gone" && orGone)) end(() => resolve(snapshot));
      else if (status === "gone") end(() => reject(error ?? gone(session)));
    };
    if (signal?.aborted) return reject(abortError());
    signal?.addEventListener("abort", onAbort, { once: true });
    leave = session.subscribe(look);
    look();
  });
}

/** The same, but a signal that fires first ends the wait: what was asked for may happen all the same. */
export function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(abortError());
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal?.removeEventListener("abort", onAbort));
  });
}

/** By its name `useChat` knows that nothing went wrong. */
function abortError(): Error {
  return new DOMException("the wait was cut short", "AbortError");
}

function gone({ sessionId }: Session): FlotillaError {
  return new FlotillaError("not_found", `there is no session ${sessionId}`);
}
