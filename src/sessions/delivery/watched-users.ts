import type { DigestedSet } from "./digested-set.ts";
import type { Follower, Followers } from "./remote-publisher.ts";
import type { Touched } from "./remote-protocol.ts";
import type { CommittedSession } from "./delivery.ts";
import type { Pods } from "./remote-subscriber.ts";

/** Users whose sessions are watched here: who is told that something happened in one of them. */
export type Users = {
  watch(tenant: string, user: string): () => void;
  listen(listener: TouchListener): () => void;
  /** Tells those here, and the processes that watch one of the session's users. */
  committed(what: CommittedSession): void;
  tell(touched: Touched | undefined): void;
  tick(): void;
  close(): void;
};

type TouchListener = (touched: Touched | undefined) => void;

export type UsersParts = {
  owners: () => Promise<readonly string[]>;
  followers: Followers;
  pods: Pods;
  /** Those that are watched, kept here. */
  watched: DigestedSet;
};

export function createUsers({ owners, followers, pods, watched }: UsersParts): Users {
  /** How many watch each of them. */
  const watchers = new Map<string, number>();
  const listeners = new Set<TouchListener>();
  let closed = false;

  const tell = (touched: Touched | undefined): void => {
    for (const listener of listeners) listener(touched);
  };

  return {
    watch(tenant, user) {
      const key = keyOf(tenant, user);
      const count = watchers.get(key) ?? 0;
      watchers.set(key, count + 1);
      if (count === 0) {
        watched.add(key);
        // Where this fails, the next second tells them.
        owners().then(
          (addresses) => !closed && watched.has(key) && pods.watch(addresses, key),
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
        if (!closed) pods.unwatch(key);
      };
    },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    committed({ sessionId, header, offset, formerUsers = [] }) {
      const { tenant } = header;
      const here: string[] = [];
      const elsewhere = new Map<Follower, string[]>();
      for (const user of [...header.users, ...formerUsers]) {
        const key = keyOf(tenant, user);
        if (watched.has(key)) here.push(user);
        for (const follower of followers.watching(key) ?? []) {
          const users = elsewhere.get(follower);
          if (users) users.push(user);
          else elsewhere.set(follower, [user]);
        }
      }
      if (here.length > 0) tell({ tenant, users: here, sessionId, offset });
      for (const [follower, users] of elsewhere) {
        followers.touched(follower, { tenant, users, sessionId, offset });
      }
    },
    tell,
    tick() {
      if (watched.size === 0) return pods.tick([]);
      owners().then(
        (addresses) => closed || pods.tick(addresses),
        () => closed || pods.tick(undefined),
      );
    },
    close() {
      closed = true;
      listeners.clear();
    },
  };
}

/** Neither part holds the character between them: databases refuse it. */
function keyOf(tenant: string, user: string): string {
  return `${tenant}\0${user}`;
}
