import type { Socket } from "node:net";
import { addressRange } from "./caller-limits.ts";

/**
 * Connections whose callers have not said who they are. They have limits of their own, so that they can't
 * take the room of callers who have. Where there are too many, the one that has kept silent the longest is
 * ended: a fresh one may be about to say who it is.
 */
export type Anonymous = {
  /** Counts a fresh connection. */
  add(socket: Socket): void;
  /** Its caller is known from now on. */
  identify(socket: Socket): void;
  readonly count: number;
};

export type AnonymousOptions = { most: number; mostPerAddress: number };

// A browser opens some at once, and a small server has no room to divide.
const mostAtLeast = 128;
const mostPerAddressAtLeast = 64;

/** How many there may be where the config doesn't say. */
export function usualAnonymous(
  maxConnections: number,
  most = Math.min(maxConnections, Math.max(mostAtLeast, Math.ceil(maxConnections / 2))),
): AnonymousOptions {
  const share = Math.max(mostPerAddressAtLeast, Math.ceil(most / 5));
  return { most, mostPerAddress: Math.min(most, share) };
}

export function createAnonymous({ most, mostPerAddress }: AnonymousOptions): Anonymous {
  /** Both in the order in which they came. */
  const all = new Map<Socket, string>();
  const perAddress = new Map<string, Set<Socket>>();

  const identify = (socket: Socket) => {
    const address = all.get(socket);
    if (address === undefined) return;
    all.delete(socket);
    const own = perAddress.get(address)!;
    own.delete(socket);
    if (own.size === 0) perAddress.delete(address);
  };
  const endFirst = ([first]: Iterable<Socket>) => {
    if (!first) return;
    identify(first);
    first.destroy();
  };

  return {
    add(socket) {
      const address = addressRange(socket.remoteAddress ?? "");
      const others = perAddress.get(address);
      if (others && others.size >= mostPerAddress) endFirst(others);
      else if (all.size >= most) endFirst(all.keys());
      all.set(socket, address);
      // The last of them may just have been ended.
      const own = perAddress.get(address) ?? new Set();
      perAddress.set(address, own.add(socket));
      socket.once("close", () => identify(socket));
    },
    identify,
    get count() {
      return all.size;
    },
  };
}
