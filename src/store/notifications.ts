import type { Listener } from "./database.ts";

/** Those who wait for letters, by their address. */
export type MailListeners = {
  add(address: string, listener: Listener): () => void;
  /** Tells those at these addresses; without any, everybody. */
  tell(addresses?: readonly string[]): void;
  clear(): void;
};

export function mailListeners(): MailListeners {
  const entries = new Set<{ readonly address: string; readonly listener: Listener }>();
  return {
    add(address, listener) {
      const entry = { address, listener };
      entries.add(entry);
      return () => entries.delete(entry);
    },
    tell(addresses) {
      for (const { address, listener } of entries) {
        if (addresses === undefined || addresses.includes(address)) listener();
      }
    },
    clear: () => entries.clear(),
  };
}
