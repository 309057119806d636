import type { Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { InboxEvent, SessionService, Sink } from "../../sessions/service.ts";
import {
  type Access,
  type Caller,
  localUser,
  may,
  mayInAll,
  noSession,
  requireVerb,
  userOf,
} from "./caller.ts";

/** Which users may use which session. */
export type Members = {
  /** Undefined where a cached read allows the caller; else a read that may reject with `not_found`. */
  check(caller: Caller, sessionId: string, options?: CheckOptions): Promise<void> | undefined;
  /** The same for a caller that follows it, with a cached read that is at most `forMs` old. */
  checkAgain(caller: Caller, sessionId: string, forMs: number): Promise<void> | undefined;
  /** Whether the caller is a member, or acts for one. Not a promise where a cached read says it. */
  isMember(caller: Caller, sessionId: string): boolean | Promise<boolean>;
  /** The members of a session may have changed: drops the cached read and calls its watchers. */
  forget(tenant: string, sessionId: string): void;
  /** Calls back when a member may have been removed. The returned function ends it. */
  watch(tenant: string, sessionId: string, callback: () => void): () => void;
};

export type CheckOptions = {
  /** A verb that allows it in all sessions of the tenant, the caller's own or not. */
  or?: Access["or"];
  /** Retry while the store is unreachable, as the change that follows does. */
  retries?: boolean;
};

/** Watches whether a subscriber of a session is still a member of it. */
export type MembershipWatch = {
  /** Call it on every event. Reads only now and then. */
  recheck(): void;
  stop(): void;
};

type MembershipWatchParts = {
  members: Members;
  clock: Clock;
  /** The current caller: a token may have been renewed. */
  caller: () => Caller;
  sessionId: string;
  /** Whether it is shown as it is, which it is to members alone. Undefined until that is known. */
  isOwn: () => boolean | undefined;
  onRemoved: (error: unknown) => void;
};

type CachedMembers = { readonly users: ReadonlySet<string>; readonly atMs: number };

// A user that was removed through another server may go on writing for this long.
const cachedForMs = 5_000;
const maxCached = 10_000;
// A user that was removed through another server may follow for this long, and get one event more.
const recheckMs = 30_000;

/**
 * Caches the members of sessions for a short time, so that not every message reads them. A cached yes is
 * believed; a cached no is read again each time, because the user may just have been added.
 */
export function createMembers(sessions: Pick<SessionService, "get">, clock: Clock): Members {
  const cached = new Map<string, CachedMembers>();
  const reads = new Map<string, Promise<CachedMembers>>();
  const watching = new Map<string, Set<() => void>>();

  const readMembers = async (
    { tenant, sessionId, key }: { tenant: string; sessionId: string; key: string },
    { retries = false }: CheckOptions,
  ): Promise<CachedMembers> => {
    try {
      const atMs = clock.monotonic();
      const { users } = await sessions.get(tenant, sessionId, { retries, withoutMetadata: true });
      const found = { users: new Set(users), atMs };
      cached.delete(key);
      cached.set(key, found);
      if (cached.size > maxCached) cached.delete(cached.keys().next().value!);
      return found;
    } finally {
      reads.delete(readKey(key, retries));
    }
  };

  /** A cached read, if it is fresh. */
  const freshMembers = (key: string, forMs: number): CachedMembers | undefined => {
    const found = cached.get(key);
    return found && clock.monotonic() - found.atMs < forMs ? found : undefined;
  };
  const sharedRead = (
    session: { tenant: string; sessionId: string; key: string },
    options: CheckOptions,
  ): Promise<CachedMembers> => {
    const sharedKey = readKey(session.key, options.retries);
    let answer = reads.get(sharedKey);
    if (!answer) reads.set(sharedKey, (answer = readMembers(session, options)));
    return answer;
  };

  const checkWithin = (
    caller: Caller,
    sessionId: string,
    forMs: number,
    options: CheckOptions,
  ): Promise<void> | undefined => {
    const { tenant } = caller;
    // There the user of that name is another one.
    const user = caller.isElsewhere ? undefined : caller.user;
    if (caller.sessions && !caller.sessions.has(sessionId))
      return Promise.reject(noSession(sessionId));
    // A missing session is reported by the service.
    const { or } = options;
    if (mayInAll(caller, "sessions:any") || (or && mayInAll(caller, or))) return undefined;
    const key = keyOf(tenant, sessionId);
    if (user !== undefined && freshMembers(key, forMs)?.users.has(user)) return undefined;
    return sharedRead({ tenant, sessionId, key }, options).then(({ users }) => {
      if (user === undefined || !users.has(user)) throw noSession(sessionId);
    });
  };

  return {
    checkAgain: (caller, sessionId, forMs) =>
      checkWithin(caller, sessionId, forMs, { or: "fleet:read" }),
    check: (caller, sessionId, options = {}) =>
      checkWithin(caller, sessionId, cachedForMs, options),
    isMember(caller, sessionId) {
      const { tenant } = caller;
      const user = actingUser(caller);
      if (user === undefined) return false;
      const key = keyOf(tenant, sessionId);
      const found = freshMembers(key, cachedForMs);
      if (found) return found.users.has(user);
      return sharedRead({ tenant, sessionId, key }, {}).then(
        ({ users }) => users.has(user),
        (error: unknown) => {
          // A missing session is reported by the service.
          if (hasCode(error, "not_found")) return false;
          throw error;
        },
      );
    },
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

/** Whether the caller is one of a session's users, or acts for one. */
export function isAmongMembers(caller: Caller, users: readonly string[]): boolean {
  const user = actingUser(caller);
  return user !== undefined && users.includes(user);
}

/**
 * The user whose conversations the caller sees as they are. A program may name any user, so one that looks
 * after the fleet would see by a name what it may not see itself.
 */
function actingUser(caller: Caller): string | undefined {
  const { user, kind } = caller;
  if (kind === "local") return user ?? localUser;
  const isItself = kind === "user" && !caller.isElsewhere;
  const mayActFor =
    kind === "server" && may(caller, "sessions:read") && may(caller, "payloads:read");
  return isItself || mayActFor ? user : undefined;
}

export function watchMembership(parts: MembershipWatchParts): MembershipWatch {
  const { members, clock, caller, sessionId, isOwn, onRemoved } = parts;
  let checkedAtMs = clock.monotonic();
  /** One that may follow it without being a member would go on seeing it as members do. */
  const checkOwn = async () => {
    if (!(await members.isMember(caller(), sessionId))) onRemoved(noSession(sessionId));
  };
  const check = (forMs: number) => {
    checkedAtMs = clock.monotonic();
    const needsNone = mayInAll(caller(), "fleet:read") || mayInAll(caller(), "sessions:any");
    // A failed read isn't a reason to end what was allowed.
    if (isOwn() && needsNone) return void checkOwn().catch(() => {});
    members.checkAgain(caller(), sessionId, forMs)?.catch((error: unknown) => {
      // A failed read isn't a reason to end what was allowed.
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

/**
 * The user whose inbox is read. It shows what was said as its user sees it, so a program that may not see
 * that can't name one.
 */
export function inboxUserOf(caller: Caller): string {
  if (caller.kind === "server") requireVerb(caller, "payloads:read");
  return userOf(caller);
}

/** An inbox as its reader may see it: a token that names sessions shows only those. */
export function filterInbox({ sessions: named }: Caller, sink: Sink<InboxEvent>): Sink<InboxEvent> {
  if (!named) return sink;
  let asOf: number | undefined;
  return {
    ...sink,
    push(event) {
      if (event.type === "removed") {
        const sessionIds = event.sessionIds.filter((sessionId) => named.has(sessionId));
        return sessionIds.length === 0 || sink.push({ ...event, sessionIds });
      }
      const sessions = event.sessions.filter(({ sessionId }) => named.has(sessionId));
      const isNothing = event.type === "changed" && sessions.length === 0 && event.asOf === asOf;
      asOf = event.asOf;
      return isNothing || sink.push({ ...event, sessions });
    },
  };
}

/** Reads that retry aren't shared with others, whose callers must not wait. */
function readKey(key: string, retries = false): string {
  return `${key}\0${retries ? "retries" : ""}`;
}

/** NUL separates the parts, because no name contains it. */
function keyOf(tenant: string, sessionId: string): string {
  return `${tenant}\0${sessionId}`;
}
