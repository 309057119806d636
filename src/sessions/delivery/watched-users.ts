import type { DigestedSet } from "./digested-set.ts";
import type { RemoteSubscriber, EntryPublisher } from "./remote-publisher.ts";
import type { Touched } from "./remote-protocol.ts";
import type { CommittedSession } from "./delivery.ts";
import type { EntrySubscriber } from "./remote-subscriber.ts";

/** The users whose sessions are watched here, and the listeners for changes in them. */
export type WatchedUsers = {
  watch(tenant: string, user: string): () => void;
  listen(listener: TouchListener): () => void;
  /** Notifies local listeners, and the processes that watch one of the session's users. */
  committed(what: CommittedSession): void;
  notify(touched: Touched | undefined): void;
  tick(): void;
  close(): void;
};

type TouchListener = (touched: Touched | undefined) => void;

export type WatchedUsersParts = {
  owners: () => Promise<readonly string[]>;
  publisher: EntryPublisher;
  subscriber: EntrySubscriber;
  /** The users that are watched, maintained here. */
  watched: DigestedSet;
};

export function createWatchedUsers({
  owners,
  publisher,
  subscriber,
  watched,
}: WatchedUsersParts): WatchedUsers {
  /** How many watchers each user has. */
  const watchers = new Map<string, number>();
  const listeners = new Set<TouchListener>();
  let closed = false;

  const notify = (touched: Touched | undefined): void => {
    for (const listener of listeners) listener(touched);
  };

  return {
    watch(tenant, user) {
      const key = keyOf(tenant, user);
      const count = watchers.get(key) ?? 0;
      watchers.set(key, count + 1);
      if (count === 0) {
        watched.add(key);
        // If this fails, the next tick sends it.
        owners().then(
          (addresses) => !closed && watched.has(key) && subscriber.watch(addresses, key),
          () => {},
        );
      }
      let isOver = false;
      return () => {
        if (isOver) return;
        isOver = true;
        const left = (watchers.get(key) ?? 1) - 1;
        if (left > 0) return void watchers.set(key, left);
        watchers.delete(key);
        watched.delete(key);
        if (!closed) subscriber.unwatch(key);
      };
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    committed({ sessionId, header, offset, formerUsers = [] }) {
      const { tenant } = header;
      const localUsers: string[] = [];
      const remoteUsers = new Map<RemoteSubscriber, string[]>();
      for (const user of [...header.users, ...formerUsers]) {
        const key = keyOf(tenant, user);
        if (watched.has(key)) localUsers.push(user);
        for (const subscribed of publisher.watching(key) ?? []) {
          const users = remoteUsers.get(subscribed);
          if (users) users.push(user);
          else remoteUsers.set(subscribed, [user]);
        }
      }
      if (localUsers.length > 0) notify({ tenant, users: localUsers, sessionId, offset });
      for (const [subscribed, users] of remoteUsers) {
        publisher.publishTouched(subscribed, { tenant, users, sessionId, offset });
      }
    },
    notify,
    tick() {
      if (watched.size === 0) return subscriber.tick([]);
      owners().then(
        (addresses) => closed || subscriber.tick(addresses),
        () => closed || subscriber.tick(undefined),
      );
    },
    close() {
      closed = true;
      listeners.clear();
    },
  };
}

/** Neither part contains a NUL, because databases refuse it. */
function keyOf(tenant: string, user: string): string {
  return `${tenant}\0${user}`;
}
