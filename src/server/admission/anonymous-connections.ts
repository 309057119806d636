import type { Socket } from "node:net";
import { addressRange } from "./caller-limits.ts";

/**
 * Connections whose callers have not authenticated. They have limits of their own, so that they can't
 * use up the connections of authenticated callers. Above a limit, the oldest of them is ended: a fresh
 * one may be about to authenticate.
 */
export type AnonymousConnections = {
  /** Counts a fresh connection. */
  add(socket: Socket): void;
  /**
   * Its caller is authenticated, so it no longer counts as anonymous. A user can identify only
   * `maxPerUser` connections; further ones stay anonymous, or one token could take all connections.
   */
  identify(socket: Socket, user?: string): void;
  readonly count: number;
};

export type AnonymousOptions = { max: number; maxPerAddress: number; maxPerUser: number };

// A browser opens several at once, and a small server can't be divided further.
const smallestMax = 128;
const smallestMaxPerAddress = 64;

/** The default limits, for a server of so many connections. */
export function defaultAnonymousLimits(
  maxConnections: number,
  max = Math.min(maxConnections, Math.max(smallestMax, Math.ceil(maxConnections / 2))),
): Omit<AnonymousOptions, "maxPerUser"> {
  const share = Math.max(smallestMaxPerAddress, Math.ceil(max / 5));
  return { max, maxPerAddress: Math.min(max, share) };
}

export function createAnonymousConnections(options: AnonymousOptions): AnonymousConnections {
  const { max, maxPerAddress, maxPerUser } = options;
  /** Oldest first, in all and per address. */
  const all = new Map<Socket, string>();
  const perAddress = createGroups();
  const perUser = createGroups();

  const remove = (socket: Socket) => {
    const address = all.get(socket);
    if (address === undefined) return;
    all.delete(socket);
    perAddress.remove(address, socket);
  };
  const destroyOldest = ([first]: Iterable<Socket>) => {
    if (!first) return;
    remove(first);
    first.destroy();
  };

  return {
    add(socket) {
      const address = addressRange(socket.remoteAddress ?? "");
      const others = perAddress.of(address);
      if (others.size >= maxPerAddress) destroyOldest(others);
      else if (all.size >= max) destroyOldest(all.keys());
      all.set(socket, address);
      perAddress.add(address, socket);
      socket.once("close", () => remove(socket));
    },
    identify(socket, user) {
      if (!all.has(socket)) return;
      if (user !== undefined) {
        if (perUser.of(user).size >= maxPerUser) return;
        perUser.add(user, socket);
        socket.once("close", () => perUser.remove(user, socket));
      }
      remove(socket);
    },
    get count() {
      return all.size;
    },
  };
}

/** Sockets grouped by a name. */
function createGroups() {
  const groups = new Map<string, Set<Socket>>();
  const none: ReadonlySet<Socket> = new Set();
  return {
    of: (name: string): ReadonlySet<Socket> => groups.get(name) ?? none,
    add(name: string, socket: Socket) {
      groups.set(name, (groups.get(name) ?? new Set()).add(socket));
    },
    remove(name: string, socket: Socket) {
      const group = groups.get(name);
      if (group?.delete(socket) && group.size === 0) groups.delete(name);
    },
  };
}
