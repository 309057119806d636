import type { Listener } from "./database.ts";

/** Those who wait for letters, by their address. */
export type ChannelListeners = {
  add(address: string, listener: Listener): () => void;
  /** Tells those at these addresses; without any, everybody. */
  notify(addresses?: readonly string[]): void;
  clear(): void;
};

export function channelListeners(): ChannelListeners {
  const entries = new Set<{ readonly address: string; readonly listener: Listener }>();
  return {
    add(address, listener) {
      const entry = { address, listener };
      entries.add(entry);
      return () => entries.delete(entry);
    },
    notify(addresses) {
      for (const { address, listener } of entries) {
        if (addresses === undefined || addresses.includes(address)) listener();
      }
    },
    clear: () => entries.clear(),
  };
}
