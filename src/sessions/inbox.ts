import type { Clock } from "../base/clock.ts";
import { FlotillaError, messageOf, tooManyReads } from "../base/errors.ts";
import { createSemaphore } from "../base/semaphore.ts";
import type { Logger } from "../base/log.ts";
import type { Hub } from "./delivery/delivery.ts";
import type { InboxEvent, InboxItem, Joined, Sink } from "./service.ts";

/**
 * The sessions of users, as they change. An event about a session says only that it changed. Its inbox
 * item is read from the store, for all changed sessions together and a few times a second at most. So
 * unread counts are right in whatever order events arrive. A comparison with the store now and then finds
 * missed changes. All sockets of a user share one inbox.
 */
export type Inboxes = {
  open(tenant: string, user: string, sink: Sink<InboxEvent>): Joined;
  close(): void;
};

export type InboxesParts = {
  hub: Pick<Hub, "watchUser" | "onTouched">;
  clock: Clock;
  log: Logger;
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

export function createInboxes({ hub, clock, log, readInbox }: InboxesParts): Inboxes {
  const boxes = new Map<string, UserInbox>();
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
    } catch (error) {
      if (!box.items) return failAll(box, error);
      for (const sessionId of changed) box.changed.add(sessionId);
      if (isWhole) box.compareAtMs = 0;
      log.warn({ user: box.user, error: messageOf(error) }, "reading an inbox failed, retrying");
      box.readMs += 1_000;
    } finally {
      box.reading = false;
    }
    schedule(box);
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
    // Set before the read, so that a change missed during it causes another comparison.
    box.compareAtMs = clock.monotonic() + (items ? compareEveryMs : firstCompareMs);
    const found = await readInbox(box.tenant, box.user);
    if (!items) {
      box.items = new Map(found.map((item) => [item.sessionId, item]));
      for (const sink of box.sinks) push(box, sink, { type: "snapshot", sessions: found });
      return box.first.resolve();
    }
    publish(box, found, []);
    // The others may be gone, or just too old to be on the first page.
    const present = new Set(found.map(({ sessionId }) => sessionId));
    const rest = [...items.keys()].filter((sessionId) => !present.has(sessionId));
    if (rest.length > 0) await update(box, rest);
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
      if (sessions.length > 0) push(box, sink, { type: "changed", sessions });
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
  };
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
      // Each call gets its own member, even if the same sink is passed twice.
      const member: Sink<InboxEvent> = {
        push: (event) => sink.push(event),
        fail: (error) => sink.fail(error),
      };
      box.sinks.add(member);
      const left = Promise.withResolvers<void>();
      if (box.items) push(box, member, { type: "snapshot", sessions: [...box.items.values()] });
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

function isSame(one: InboxItem | undefined, other: InboxItem): boolean {
  return one !== undefined && JSON.stringify(one) === JSON.stringify(other);
}

function keyOf(tenant: string, user: string): string {
  return `${tenant}\0${user}`;
}
