import type { Clock } from "../../base/clock.ts";
import type { SessionService } from "../../session/service.ts";
import { type Caller, may, noSession } from "./caller.ts";

/** Who may reach which session. */
export type Members = {
  /** Nothing where the caller may, known from a moment ago; else a promise that rejects with `not_found`. */
  check(caller: Caller, sessionId: string): Promise<void> | undefined;
  /** The same, asked anew where that was longer ago than `forMs`. */
  checkAgain(caller: Caller, sessionId: string, forMs: number): Promise<void> | undefined;
  /** What is known of a session has changed: whoever watches is called. */
  forget(tenant: string, sessionId: string): void;
  /** Calls back when somebody may have been removed. The function that is returned ends it. */
  watch(tenant: string, sessionId: string, callback: () => void): () => void;
};

// Whoever was removed elsewhere may go on writing for as long.
const knownForMs = 5_000;
const knownMost = 10_000;

type Known = { readonly users: ReadonlySet<string>; readonly atMs: number };

/**
 * Remembers for a moment who takes part in sessions, so that not every message asks. That somebody does
 * is believed for that long; that somebody doesn't is asked again each time, since they may have just
 * been added.
 */
export function createMembers(sessions: Pick<SessionService, "get">, clock: Clock): Members {
  const known = new Map<string, Known>();
  const asked = new Map<string, Promise<Known>>();
  const watching = new Map<string, Set<() => void>>();

  const ask = async (tenant: string, sessionId: string, key: string): Promise<Known> => {
    try {
      const atMs = clock.monotonic();
      const { users } = await sessions.get(tenant, sessionId);
      const found = { users: new Set(users), atMs };
      known.delete(key);
      known.set(key, found);
      if (known.size > knownMost) known.delete(known.keys().next().value!);
      return found;
    } finally {
      asked.delete(key);
    }
  };

  const checkAgain: Members["checkAgain"] = (caller, sessionId, forMs) => {
    const { tenant, user } = caller;
    if (caller.sessions && !caller.sessions.has(sessionId))
      return Promise.reject(noSession(sessionId));
    // What there isn't is for the service to say.
    if (may(caller, "sessions:any")) return undefined;
    const key = keyOf(tenant, sessionId);
    const found = known.get(key);
    const isFresh = found !== undefined && clock.monotonic() - found.atMs < forMs;
    if (user !== undefined && isFresh && found.users.has(user)) return undefined;
    let answer = asked.get(key);
    if (!answer) asked.set(key, (answer = ask(tenant, sessionId, key)));
    return answer.then(({ users }) => {
      if (user === undefined || !users.has(user)) throw noSession(sessionId);
    });
  };

  return {
    checkAgain,
    check: (caller, sessionId) => checkAgain(caller, sessionId, knownForMs),
    forget(tenant, sessionId) {
      const key = keyOf(tenant, sessionId);
      known.delete(key);
      for (const callback of watching.get(key) ?? []) callback();
    },
    watch(tenant, sessionId, callback) {
      const key = keyOf(tenant, sessionId);
      const callbacks = watching.get(key) ?? new Set();
      watching.set(key, callbacks.add(callback));
      return () => {
        callbacks.delete(callback);
        if (callbacks.size === 0 && watching.get(key) === callbacks) watching.delete(key);
      };
    },
  };
}

/** Neither part holds the character between them: nobody's name may. */
function keyOf(tenant: string, sessionId: string): string {
  return `${tenant}\0${sessionId}`;
}
