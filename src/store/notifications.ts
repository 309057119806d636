import type { Listener } from "./database.ts";

/** Listeners, by channel. */
export type ChannelListeners = {
  add(channel: string, listener: Listener): () => void;
  /** Calls the listeners of these channels; without channels, all of them. */
  notify(channels?: readonly string[]): void;
  clear(): void;
};

/** Creates an empty set of listeners. */
export function channelListeners(): ChannelListeners {
  const entries = new Set<{ readonly channel: string; readonly listener: Listener }>();
  return {
    add(channel, listener) {
      const entry = { channel, listener };
      entries.add(entry);
      return () => entries.delete(entry);
    },
    notify(channels) {
      for (const { channel, listener } of entries) {
        if (channels === undefined || channels.includes(channel)) listener();
      }
    },
    clear: () => entries.clear(),
  };
}
