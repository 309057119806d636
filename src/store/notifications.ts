import type { Listener } from "./database.ts";

/** Listeners for envelopes, by address. */
export type ChannelListeners = {
  add(address: string, listener: Listener): () => void;
  /** Calls the listeners of these addresses; without addresses, all of them. */
  notify(addresses?: readonly string[]): void;
  clear(): void;
};

/** Creates an empty set of listeners. */
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
