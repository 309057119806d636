import type { Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { InboxEvent, SessionService, Sink } from "../../sessions/service.ts";
import { type Caller, may, noSession } from "./caller.ts";

/** Who may reach which session. */
export type Members = {
  /** Nothing where the caller may, known from a moment ago; else a promise that rejects with `not_found`. */
  check(caller: Caller, sessionId: string, options?: CheckOptions): Promise<void> | undefined;
  /** The same, asked anew where that was longer ago than `forMs`. */
  checkAgain(caller: Caller, sessionId: string, forMs: number): Promise<void> | undefined;
  /** What is known of a session has changed: whoever watches is called. */
  forget(tenant: string, sessionId: string): void;
  /** Calls back when somebody may have been removed. The function that is returned ends it. */
  watch(tenant: string, sessionId: string, callback: () => void): () => void;
};

export type CheckOptions = {
  /** Waits for a store that is away, for what is to be stored and waits for it then. */
  patient?: boolean;
};

// Whoever was removed elsewhere may go on writing for as long.
const cachedForMs = 5_000;
const maxCached = 10_000;

type CachedMembers = { readonly users: ReadonlySet<string>; readonly atMs: number };

/**
 * Remembers for a moment who takes part in sessions, so that not every message asks. That somebody does
 * is believed for that long; that somebody doesn't is asked again each time, since they may have just
 * been added.
 */
export function createMembers(sessions: Pick<SessionService, "get">, clock: Clock): Members {
  const cached = new Map<string, CachedMembers>();
  const reads = new Map<string, Promise<CachedMembers>>();
  const watching = new Map<string, Set<() => void>>();

  const readMembers = async (
    { tenant, sessionId, key }: { tenant: string; sessionId: string; key: string },
    { patient = false }: CheckOptions,
  ): Promise<CachedMembers> => {
    try {
      const atMs = clock.monotonic();
      const { users } = await sessions.get(tenant, sessionId, { patient });
      const found = { users: new Set(users), atMs };
      cached.delete(key);
      cached.set(key, found);
      if (cached.size > maxCached) cached.delete(cached.keys().next().value!);
      return found;
    } finally {
      reads.delete(readKey(key, patient));
    }
  };

  const checkWithin = (
    caller: Caller,
    sessionId: string,
    forMs: number,
    options: CheckOptions,
  ): Promise<void> | undefined => {
    const { tenant, user } = caller;
    if (caller.sessions && !caller.sessions.has(sessionId))
      return Promise.reject(noSession(sessionId));
    // What there isn't is for the service to say.
    if (may(caller, "sessions:any")) return undefined;
    const key = keyOf(tenant, sessionId);
    const found = cached.get(key);
    const isFresh = found !== undefined && clock.monotonic() - found.atMs < forMs;
    if (user !== undefined && isFresh && found.users.has(user)) return undefined;
    const sharedKey = readKey(key, options.patient);
    let answer = reads.get(sharedKey);
    if (!answer) reads.set(sharedKey, (answer = readMembers({ tenant, sessionId, key }, options)));
    return answer.then(({ users }) => {
      if (user === undefined || !users.has(user)) throw noSession(sessionId);
    });
  };

  return {
    checkAgain: (caller, sessionId, forMs) => checkWithin(caller, sessionId, forMs, {}),
    check: (caller, sessionId, options = {}) =>
      checkWithin(caller, sessionId, cachedForMs, options),
    forget(tenant, sessionId) {
      const key = keyOf(tenant, sessionId);
      cached.delete(key);
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

/** A read doesn't wait for what a write waits for. */
function readKey(key: string, patient = false): string {
  return `${key}\0${patient ? "patient" : ""}`;
}

/** Neither part holds the character between them: nobody's name may. */
function keyOf(tenant: string, sessionId: string): string {
  return `${tenant}\0${sessionId}`;
}

/** Looks whether somebody who follows a session still takes part in it. */
export type MembershipWatch = {
  /** To be called when something happens. Asks only now and then. */
  recheck(): void;
  stop(): void;
};

type MembershipWatchParts = {
  members: Members;
  clock: Clock;
  /** As it is now: a token may have been renewed. */
  caller: () => Caller;
  sessionId: string;
  onRemoved: (error: unknown) => void;
};

// Whoever was removed by way of another server may see what happens for as long, and one thing more.
const recheckMs = 30_000;

export function watchMembership(parts: MembershipWatchParts): MembershipWatch {
  const { members, clock, caller, sessionId, onRemoved } = parts;
  let checkedAtMs = clock.monotonic();
  const check = (forMs: number) => {
    checkedAtMs = clock.monotonic();
    members.checkAgain(caller(), sessionId, forMs)?.catch((error: unknown) => {
      // Trouble with looking isn't a reason to end what was allowed.
      if (hasCode(error, "not_found")) onRemoved(error);
    });
  };
  return {
    recheck() {
      if (clock.monotonic() - checkedAtMs >= recheckMs) check(recheckMs);
    },
    stop: members.watch(caller().tenant, sessionId, () => check(0)),
  };
}

/** An inbox as its reader may see it: a token that names the sessions it is good for shows those only. */
export function filterInbox({ sessions: named }: Caller, sink: Sink<InboxEvent>): Sink<InboxEvent> {
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
