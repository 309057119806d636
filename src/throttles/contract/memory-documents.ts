import { mapKey } from "../shares/share-store.ts";
import type { ShareDocuments, StoredDocument } from "../shares/documents.ts";

/** Documents of shares in memory, as all pods of a test reach them. */
export function memoryDocuments(): ShareDocuments & { evict(): void } {
  const all = new Map<string, StoredDocument>();
  const listeners = new Set<(text: string) => void>();
  let last = 0;
  return {
    /** All go, as where a stream has no room. */
    evict: () => all.clear(),
    read: async (id) => all.get(mapKey(id)),
    async write(id, rev, text) {
      if ((all.get(mapKey(id))?.rev ?? 0) !== rev) {
        return { type: "unknown", why: "another write was stored" };
      }
      all.set(mapKey(id), { rev: ++last, text });
      return { type: "stored", rev: last };
    },
    announce(text) {
      queueMicrotask(() => listeners.forEach((each) => each(text)));
    },
    onAnnounced(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
  };
}
