import type { Network, SocketClass } from "../index.ts";

export type FakeNetwork = ReturnType<typeof createFakeNetwork>;

/** A network that comes and goes as the test says. */
export function createFakeNetwork() {
  let isOnline = true;
  let isMute = false;
  const callbacks = new Set<(change: "online" | "offline") => void>();
  const sockets = new Set<WebSocket>();
  class Socket extends WebSocket {
    constructor(url: string, protocols: string[]) {
      super(url, protocols);
      sockets.add(this);
    }
    override send(text: string) {
      if (!isMute) super.send(text);
    }
  }
  const network: Network = {
    isOnline: () => isOnline,
    onChange(callback) {
      callbacks.add(callback);
      return () => callbacks.delete(callback);
    },
  };
  return {
    network,
    Socket: Socket as unknown as SocketClass,
    /** Nothing is sent any more, and neither side learns of it. */
    mute() {
      isMute = true;
    },
    set(change: "online" | "offline") {
      isOnline = change === "online";
      if (!isOnline) for (const socket of sockets) socket.close();
      for (const callback of callbacks) callback(change);
    },
  };
}
