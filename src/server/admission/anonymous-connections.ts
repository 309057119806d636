import type { Socket } from "node:net";
import { addressRange } from "./caller-limits.ts";

/**
 * Connections whose callers have not said who they are. They have limits of their own, so that they can't
 * take the room of callers who have. Where there are too many, the one that has kept silent the longest is
 * ended: a fresh one may be about to say who it is.
 */
export type AnonymousConnections = {
  /** Counts a fresh connection. */
  add(socket: Socket): void;
  /**
   * Its caller is known from now on. A user has so many connections by saying who calls; more of them stay
   * where they are, or one token would take the room of all callers.
   */
  identify(socket: Socket, user?: string): void;
  readonly count: number;
};

export type AnonymousOptions = { max: number; maxPerAddress: number; maxPerUser: number };

// A browser opens some at once, and a small server has no room to divide.
const smallestMax = 128;
const smallestMaxPerAddress = 64;

/** How many there may be where the config doesn't say. */
export function defaultAnonymousLimits(
  maxConnections: number,
  max = Math.min(maxConnections, Math.max(smallestMax, Math.ceil(maxConnections / 2))),
): Omit<AnonymousOptions, "maxPerUser"> {
  const share = Math.max(smallestMaxPerAddress, Math.ceil(max / 5));
  return { max, maxPerAddress: Math.min(max, share) };
}

export function createAnonymousConnections(options: AnonymousOptions): AnonymousConnections {
  const { max, maxPerAddress, maxPerUser } = options;
  /** In the order in which they came, as those of each address are. */
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

/** Sockets by a name that they share. */
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
