import { type OutboxEntry, outboxKeyOf, type OutboxDisk } from "../finish/outbox.ts";

/** A disk that outlives the pods of a test, and does what it is told. */
export function memoryDisk() {
  const entries = new Map<string, OutboxEntry>();
  let failure: Error | undefined;
  const disk: OutboxDisk = {
    takeOver: async () => [...entries.values()],
    async write(kept, dropped) {
      if (failure) throw failure;
      for (const key of dropped) entries.delete(outboxKeyOf(key));
      for (const entry of kept) entries.set(outboxKeyOf(entry.finish), entry);
    },
    close: async () => {},
  };
  return {
    disk,
    entries,
    fail(error: Error | undefined) {
      failure = error;
    },
  };
}
