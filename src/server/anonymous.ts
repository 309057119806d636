import type { Socket } from "node:net";
import { addressRange } from "./caller-limits.ts";

/**
 * Connections whose callers have not said who they are. They have limits of their own, so that they can't
 * take the room of callers who have.
 */
export type Anonymous = {
  /** Counts a fresh connection, or ends it where there are too many. */
  add(socket: Socket): void;
  /** Its caller is known from now on. */
  identify(socket: Socket): void;
  readonly count: number;
};

export type AnonymousOptions = { most: number; mostPerAddress: number };

export function createAnonymous({ most, mostPerAddress }: AnonymousOptions): Anonymous {
  const all = new Map<Socket, string>();
  const perAddress = new Map<string, number>();

  const identify = (socket: Socket) => {
    const address = all.get(socket);
    if (address === undefined) return;
    all.delete(socket);
    const left = perAddress.get(address)! - 1;
    if (left > 0) perAddress.set(address, left);
    else perAddress.delete(address);
  };

  return {
    add(socket) {
      const address = addressRange(socket.remoteAddress ?? "");
      const own = perAddress.get(address) ?? 0;
      if (all.size >= most || own >= mostPerAddress) return void socket.destroy();
      all.set(socket, address);
      perAddress.set(address, own + 1);
      socket.once("close", () => identify(socket));
    },
    identify,
    get count() {
      return all.size;
    },
  };
}
