import type { Clock } from "../base/clock.ts";
import { FlotillaError, hasCode, messageOf, storeAwayCodes, tooManyReads } from "../base/errors.ts";
import { createSemaphore } from "../base/semaphore.ts";
import type { Logger } from "../base/log.ts";
import type { Hub } from "./delivery/delivery.ts";
import { maxShownAgeMs } from "./last-pages.ts";
import type { InboxEvent, InboxItem, Joined, Sink } from "./service.ts";

/**
 * The sessions of users, as they change. An event about a session says only that it changed. Its inbox
 * item is read from the store, for all changed sessions together and a few times a second at most. So
 * unread counts are right in whatever order events arrive. A comparison with the store now and then finds
 * missed changes. All sockets of a user share one inbox.
 *
 * Where logs are ahead of the store, an inbox may miss what isn't there yet, and can't be read while the store
 * is away. Its events then have `asOf`, the time up to which it has everything, until it is up to date again.
 */
export type Inboxes = {
  open(tenant: string, user: string, sink: Sink<InboxEvent>): Joined;
  close(): void;
};

export type InboxesParts = {
  hub: Pick<Hub, "watchUser" | "onTouched">;
  clock: Clock;
  log: Logger;
  /** How long ago the store had everything; undefined where that isn't told. */
  behindMs?: () => number | undefined;
  readInbox: (
    tenant: string,
    user: string,
    options?: { only?: readonly string[]; limit?: number },
  ) => Promise<InboxItem[]>;
};

type UserInbox = {
  readonly tenant: string;
  readonly user: string;
  readonly sinks: Set<Sink<InboxEvent>>;
  readonly unwatch: () => void;
  /** The last published item of each session; undefined until the first read. */
  items: Map<string, InboxItem> | undefined;
  readonly first: PromiseWithResolvers<void>;
  changed: Set<string>;
  /** When to compare the whole inbox with the store. */
  compareAtMs: number;
  /** When the store had all that the last comparison found, by both clocks; undefined where that isn't told. */
  comparedTo: { readonly asOf: number; readonly atMs: number } | undefined;
  /** Why it can't be read; undefined where it could be. */
  error: unknown;
  /** What its events say: undefined while it is up to date. */
  asOf: number | undefined;
  readMs: number;
  reading: boolean;
  cancel: (() => void) | undefined;
};

const minReadIntervalMs = 250;
const compareEveryMs = 30_000;
// Other pods learn of a new watch a little later. This comparison finds what happened before.
const firstCompareMs = 2_000;
const maxConcurrentReads = 4;
const maxReadWaitMs = 30_000;
/** More changed sessions than this cause a comparison of the whole inbox. */
const maxChanged = 200;
const maxItems = 1_000;
/** Why none can be read, if one can't. */
const unreadableCodes = [...storeAwayCodes, "overloaded"] as const;
/** How far an inbox may be behind and say nothing of it. */
const noticeableMs = 5_000;
/** Sessions of inboxes without readers, which are shown again while the store is away. */
const maxKeptItems = 20_000;
/** How often it is said at most that inboxes can't be read. */
const failureEveryMs = 60_000;

/** An inbox as it was when its last reader left. */
type LastInbox = Pick<UserInbox, "comparedTo"> & { readonly items: Map<string, InboxItem> };

export function createInboxes(parts: InboxesParts): Inboxes {
  const { hub, clock, log, readInbox, behindMs = () => undefined } = parts;
  const boxes = new Map<string, UserInbox>();
  const lastInboxes = new Map<string, LastInbox>();
  let keptItems = 0;
  let failedMs = -Infinity;
  let isFailing = false;
  const { run: read } = createSemaphore(maxConcurrentReads, {
    clock,
    waitMs: maxReadWaitMs,
    late: tooManyReads,
  });

  const schedule = (box: UserInbox): void => {
    if (box.reading || box.sinks.size === 0) return;
    box.cancel?.();
    const nowMs = clock.monotonic();
    const dueMs = box.items && box.changed.size === 0 ? box.compareAtMs : nowMs;
    const delayMs = Math.max(0, Math.max(dueMs, box.readMs + minReadIntervalMs) - nowMs);
    box.cancel = clock.after(delayMs, () => void refresh(box));
  };

  const refresh = async (box: UserInbox): Promise<void> => {
    box.reading = true;
    box.readMs = clock.monotonic();
    const { changed } = box;
    box.changed = new Set();
    const isWhole = !box.items || box.readMs >= box.compareAtMs || changed.size > maxChanged;
    try {
      await read(() => (isWhole ? compare(box) : update(box, [...changed])));
      if (isFailing) log.info({}, "inboxes can be read again");
      isFailing = false;
    } catch (error) {
      logFailure(box, error);
      if (!box.items && !showLast(box, error)) return failAll(box, error);
      for (const sessionId of changed) box.changed.add(sessionId);
      setBehind(box, error);
      if (isWhole) box.compareAtMs = 0;
      box.readMs += 1_000;
    } finally {
      box.reading = false;
    }
    schedule(box);
  };

  /** One line for all inboxes while the store is away, and one for each that can't be read otherwise. */
  const logFailure = (box: UserInbox, error: unknown): void => {
    const facts = { error: messageOf(error) };
    if (!hasCode(error, ...unreadableCodes)) {
      // The first read's failure is its readers' to report.
      if (!box.items || box.error !== undefined) return;
      return log.warn({ user: box.user, ...facts }, "an inbox can't be read: trying again");
    }
    const nowMs = clock.monotonic();
    // A store that is overloaded answers some, so that this may begin and end many times a second.
    if (isFailing || nowMs - failedMs < failureEveryMs) return;
    isFailing = true;
    failedMs = nowMs;
    log.warn(facts, "inboxes can't be read: they stay as they are, and are read again");
  };

  /** Reads some sessions, and publishes what has changed. */
  const update = async (box: UserInbox, only: readonly string[]): Promise<void> => {
    const found = await readInbox(box.tenant, box.user, { only, limit: maxItems });
    const present = new Set(found.map(({ sessionId }) => sessionId));
    publish(
      box,
      found,
      only.filter((sessionId) => !present.has(sessionId)),
    );
  };

  const compare = async (box: UserInbox): Promise<void> => {
    const { items } = box;
    const atMs = clock.monotonic();
    // Set before the read, so that a change missed during it causes another comparison.
    box.compareAtMs = atMs + (items ? compareEveryMs : firstCompareMs);
    const behind = behindMs();
    const comparedTo =
      behind === undefined ? undefined : { asOf: clock.now() - behind, atMs: atMs - behind };
    const found = await readInbox(box.tenant, box.user);
    box.comparedTo = comparedTo;
    if (!items) {
      show(box, new Map(found.map((item) => [item.sessionId, item])));
      return;
    }
    setBehind(box, undefined);
    publish(box, found, []);
    // The others may be gone, or just too old to be on the first page.
    const present = new Set(found.map(({ sessionId }) => sessionId));
    const rest = [...items.keys()].filter((sessionId) => !present.has(sessionId));
    if (rest.length > 0) await update(box, rest);
  };

  /** Sends an inbox for the first time. */
  const show = (box: UserInbox, items: Map<string, InboxItem>, error?: unknown): void => {
    box.items = items;
    box.error = error;
    box.asOf = asOfNow(box);
    for (const sink of box.sinks) push(box, sink, snapshotOf(box));
    box.first.resolve();
  };

  /** Shows what the user's inbox was before, and returns false if nothing is known of it, or that is too old. */
  const showLast = (box: UserInbox, error: unknown): boolean => {
    const last = hasCode(error, ...unreadableCodes) && takeLast(box);
    if (!last || isTooOld(last)) return false;
    box.comparedTo = last.comparedTo;
    show(box, last.items, error);
    return true;
  };

  const isTooOld = ({ comparedTo }: Pick<UserInbox, "comparedTo">): boolean =>
    comparedTo !== undefined && clock.monotonic() - comparedTo.atMs > maxShownAgeMs;

  /** What an inbox has to say of its age. */
  const asOfNow = ({ comparedTo, error }: UserInbox): number | undefined => {
    if (!comparedTo) return undefined;
    const isOld = error !== undefined || clock.monotonic() - comparedTo.atMs >= noticeableMs;
    return isOld ? comparedTo.asOf : undefined;
  };

  /** Notes how its last comparison went, and tells readers if its age isn't what they know. */
  const setBehind = (box: UserInbox, error: unknown): void => {
    box.error = error;
    const asOf = asOfNow(box);
    if (asOf !== undefined) {
      box.compareAtMs = Math.min(box.compareAtMs, clock.monotonic() + noticeableMs);
    }
    if (asOf === box.asOf) return;
    box.asOf = asOf;
    for (const sink of box.sinks) push(box, sink, { type: "changed", sessions: [], ...aged(box) });
  };

  const publish = (box: UserInbox, found: readonly InboxItem[], gone: readonly string[]): void => {
    const items = box.items!;
    const sessions = found.filter((item) => !isSame(items.get(item.sessionId), item));
    for (const item of sessions) {
      // Moves changed items to the end, so that the oldest are dropped first.
      items.delete(item.sessionId);
      items.set(item.sessionId, item);
    }
    const sessionIds = gone.filter((sessionId) => items.delete(sessionId));
    for (const sessionId of items.keys()) {
      if (items.size <= maxItems) break;
      items.delete(sessionId);
    }
    for (const sink of box.sinks) {
      if (sessions.length > 0) push(box, sink, { type: "changed", sessions, ...aged(box) });
      if (sessionIds.length > 0) push(box, sink, { type: "removed", sessionIds });
    }
  };

  const push = (box: UserInbox, sink: Sink<InboxEvent>, event: InboxEvent): void => {
    if (box.sinks.has(sink) && !sink.push(event)) leave(box, sink);
  };
  const leave = (box: UserInbox, sink: Sink<InboxEvent>): void => {
    if (box.sinks.delete(sink) && box.sinks.size === 0) drop(box);
  };
  const drop = (box: UserInbox): void => {
    box.cancel?.();
    box.unwatch();
    const key = keyOf(box.tenant, box.user);
    if (boxes.get(key) === box) boxes.delete(key);
    keepLast(key, box);
  };
  const keepLast = (key: string, { items, comparedTo }: UserInbox): void => {
    if (!items || !comparedTo) return;
    forgetLast(key);
    lastInboxes.set(key, { items, comparedTo });
    keptItems += weightOf(items);
    while (keptItems > maxKeptItems) forgetLast(lastInboxes.keys().next().value!);
  };
  const forgetLast = (key: string): LastInbox | undefined => {
    const last = lastInboxes.get(key);
    if (lastInboxes.delete(key)) keptItems -= weightOf(last!.items);
    return last;
  };
  const takeLast = (box: UserInbox) => forgetLast(keyOf(box.tenant, box.user));
  const failAll = (box: UserInbox, error: unknown): void => {
    const sinks = [...box.sinks];
    box.sinks.clear();
    drop(box);
    box.first.reject(error);
    for (const sink of sinks) sink.fail(error);
  };

  const make = (tenant: string, user: string): UserInbox => {
    const box: UserInbox = {
      tenant,
      user,
      sinks: new Set(),
      unwatch: hub.watchUser(tenant, user),
      items: undefined,
      first: Promise.withResolvers<void>(),
      changed: new Set(),
      compareAtMs: 0,
      comparedTo: undefined,
      error: undefined,
      asOf: undefined,
      readMs: -Infinity,
      reading: false,
      cancel: undefined,
    };
    box.first.promise.catch(() => {});
    boxes.set(keyOf(tenant, user), box);
    return box;
  };

  const unlisten = hub.onTouched((touched) => {
    if (!touched) {
      for (const box of boxes.values()) {
        box.compareAtMs = 0;
        schedule(box);
      }
      return;
    }
    for (const user of touched.users) {
      const box = boxes.get(keyOf(touched.tenant, user));
      if (!box) continue;
      box.changed.add(touched.sessionId);
      if (!box.reading && box.changed.size === 1) schedule(box);
    }
  });

  return {
    open(tenant, user, sink) {
      const box = boxes.get(keyOf(tenant, user)) ?? make(tenant, user);
      if (box.items && box.error !== undefined && isTooOld(box)) {
        sink.fail(box.error);
        const ready = Promise.reject<void>(box.error);
        ready.catch(() => {});
        return { ready, leave: () => {} };
      }
      // Each call gets its own member, even if the same sink is passed twice.
      const member: Sink<InboxEvent> = {
        push: (event) => sink.push(event),
        fail: (error) => sink.fail(error),
      };
      box.sinks.add(member);
      const left = Promise.withResolvers<void>();
      if (box.items) push(box, member, snapshotOf(box));
      else if (box.sinks.size === 1) void refresh(box);
      const ready = Promise.race([box.first.promise, left.promise]);
      ready.catch(() => {});
      return {
        ready,
        leave() {
          leave(box, member);
          left.resolve();
        },
      };
    },
    close() {
      unlisten();
      for (const box of boxes.values()) {
        failAll(
          box,
          new FlotillaError("closed", "this pod is shutting down: open the inbox at another pod"),
        );
      }
    },
  };
}

/** An empty one takes its place, too. */
function weightOf(items: ReadonlyMap<string, InboxItem>): number {
  return items.size + 1;
}

function snapshotOf(box: UserInbox): InboxEvent {
  return { type: "snapshot", sessions: [...box.items!.values()], ...aged(box) };
}

function aged({ asOf }: UserInbox): { readonly asOf?: number } {
  return asOf === undefined ? {} : { asOf };
}

function isSame(one: InboxItem | undefined, other: InboxItem): boolean {
  return one !== undefined && JSON.stringify(one) === JSON.stringify(other);
}

function keyOf(tenant: string, user: string): string {
  return `${tenant}\0${user}`;
}
