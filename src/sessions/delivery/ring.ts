import type { Entry } from "../../protocol/message.ts";

/** The newest entries of a session, without gaps, as many as fit. */
export type Ring = {
  /** Adds entries that follow right after the newest one here. */
  add(entries: readonly Entry[]): void;
  /** Adds entries that end right before the oldest one here; those that do not fit are left out. */
  addBefore(entries: readonly Entry[], head: number): void;
  /** All entries after this seq; undefined if some of them are not here. */
  after(seq: number): readonly Entry[] | undefined;
  at(seq: number): Entry | undefined;
  clear(): void;
};

/** The bytes that all rings of a process use together, and how to free some. */
export type RingBudget = { usedBytes: number; readonly maxBytes: number; evict(): void };

export function createRing(budget: RingBudget, maxBytes: number): Ring {
  let entries: Entry[] = [];
  let sizes: number[] = [];
  let bytes = 0;

  const grow = (by: number) => {
    bytes += by;
    budget.usedBytes += by;
  };
  const trim = () => {
    let drop = 0;
    while (bytes > maxBytes && drop < entries.length) grow(-sizes[drop++]!);
    if (drop === 0) return;
    entries = entries.slice(drop);
    sizes = sizes.slice(drop);
  };

  return {
    add(more) {
      for (const entry of more) {
        const size = estimateJsonBytes(entry);
        entries.push(entry);
        sizes.push(size);
        grow(size);
      }
      // An eighth too much is tolerated, so that a full ring is not copied for every entry.
      if (bytes > maxBytes * 1.125) trim();
      if (budget.usedBytes > budget.maxBytes) budget.evict();
    },
    addBefore(earlier, head) {
      const first = entries[0]?.seq ?? head + 1;
      let take = earlier.length;
      if (earlier[take - 1]?.seq !== first - 1) return;
      const found: number[] = [];
      let more = 0;
      while (take > 0) {
        const size = estimateJsonBytes(earlier[take - 1]!);
        if (bytes + more + size > maxBytes || budget.usedBytes + more + size > budget.maxBytes)
          break;
        more += size;
        found.unshift(size);
        take--;
      }
      if (found.length === 0) return;
      entries = [...earlier.slice(take), ...entries];
      sizes = [...found, ...sizes];
      grow(more);
    },
    after(seq) {
      const first = entries[0]?.seq;
      if (first === undefined || seq + 1 < first) return undefined;
      return entries.slice(seq + 1 - first);
    },
    at: (seq) => entries[seq - (entries[0]?.seq ?? 0)],
    clear() {
      grow(-bytes);
      entries = [];
      sizes = [];
    },
  };
}

/** Estimates the size of a value as JSON, without serialising it. */
export function estimateJsonBytes(value: unknown): number {
  if (typeof value === "string") return value.length + 2;
  if (typeof value !== "object" || value === null) return 8;
  let size = 2;
  if (Array.isArray(value)) for (const each of value) size += estimateJsonBytes(each) + 1;
  else for (const key in value) size += key.length + 4 + estimateJsonBytes((value as never)[key]);
  return size;
}
