import { FlotillaError } from "../base/errors.ts";
import type { Json } from "../base/json.ts";
import { innerRanges } from "./key.ts";
import type { StepJournal, StepLimits, StoredStep } from "./model.ts";
import { unreadable } from "./refusals.ts";

/** What one attempt knows of the rows in its journal. */
export type OpenJournal = ReturnType<typeof openJournal>;

/** Opens a journal. It is read once, before the first answer, and only if it can hold anything. */
export function openJournal(journal: StepJournal, limits: StepLimits) {
  /** The rows of earlier attempts, and their keys in order. Undefined until they are read. */
  let earlier: ReadonlyMap<string, StoredStep> | undefined = journal.read ? undefined : new Map();
  let earlierKeys: readonly string[] = [];
  let reading: Promise<void> | undefined;
  /** The sizes of all rows that are stored now. */
  const sizes = new Map<string, number>();
  const asked = new Set<string>();
  let bytes = 0;
  /** What the rows add that are being stored. */
  let storingBytes = 0;
  let lastSeq = 0;

  const read = async (): Promise<void> => {
    const found = await journal.read!();
    earlier = new Map(found.map((row) => [row.key, row]));
    earlierKeys = [...earlier.keys()].toSorted(byCodeUnits);
    for (const row of found) {
      lastSeq = Math.max(lastSeq, row.seq);
      set(row.key, row.bytes);
    }
  };

  const set = (key: string, size: number): void => {
    bytes += size - (sizes.get(key) ?? 0);
    sizes.set(key, size);
  };

  const full = (what: string): FlotillaError => {
    const { maxSteps, maxBytes } = limits;
    return new FlotillaError(
      "steps_full",
      `${what} stored or under way, which is the most: use \`step.loop\`, whose rounds forget their steps, or steps within a step`,
      { details: { maxSteps, maxBytes } },
    );
  };

  return {
    /** Undefined if the rows of earlier attempts are known. */
    reading(): Promise<void> | undefined {
      if (earlier !== undefined) return undefined;
      return (reading ??= read());
    },
    /** The number of a row of an earlier attempt, which isn't asked for by that. */
    seqOf: (key: string) => earlier!.get(key)?.seq,
    /** Whether a step that has ended in an earlier attempt, before the row of this number, wasn't asked for yet. */
    isBehind(seq: number): boolean {
      for (const row of earlier!.values()) {
        const isEnded = row.kind === "done" || row.kind === "failed";
        if (isEnded && row.seq < seq && sizes.has(row.key) && !asked.has(row.key)) return true;
      }
      return false;
    },
    /** The row of an earlier attempt. */
    find(key: string): StoredStep | undefined {
      const row = earlier!.get(key);
      if (row) asked.add(key);
      return row;
    },
    async valueOf({ key, value }: StoredStep): Promise<Json> {
      const text = value ?? (await journal.readValue(key));
      try {
        return JSON.parse(text) as Json;
      } catch (error) {
        throw unreadable(key, "isn't JSON", error);
      }
    },
    nextSeq: () => ++lastSeq,
    set,
    /** Whether a row is stored, by this attempt or an earlier one. */
    has: (key: string) => sizes.has(key),
    drop(key: string): void {
      bytes -= sizes.get(key) ?? 0;
      sizes.delete(key);
    },
    /** The keys of earlier attempts within a step that are still stored. */
    within(path: string): string[] {
      if (earlierKeys.length === 0) return [];
      return innerRanges(path).flatMap(([from, before]) => {
        const keys = earlierKeys.slice(
          firstFrom(earlierKeys, from),
          firstFrom(earlierKeys, before),
        );
        return keys.filter((key) => sizes.has(key));
      });
    },
    /** Throws if no further step may begin beside those that run. */
    refuseIfFull(running: number): void {
      const { maxSteps, maxBytes } = limits;
      if (bytes >= maxBytes) throw full(`${maxBytes} bytes of steps are`);
      if (sizes.size + running >= maxSteps) throw full(`${maxSteps} steps are`);
    },
    /**
     * Counts a row that is about to be stored until the returned function is called. Throws if the rows
     * would then have more bytes than they may. `forgotten` are the keys that the row replaces.
     */
    reserve(key: string, size: number, forgotten: ReadonlySet<string>): () => void {
      let added = size - (sizes.get(key) ?? 0);
      for (const inner of forgotten) added -= sizes.get(inner) ?? 0;
      // A row that makes the journal no larger is stored whatever the others hold.
      if (added > 0 && bytes + storingBytes + added > limits.maxBytes) {
        throw full(`${limits.maxBytes} bytes of steps are`);
      }
      // What a row frees is free once it is stored.
      const reserved = Math.max(0, added);
      storingBytes += reserved;
      return () => void (storingBytes -= reserved);
    },
    /** The keys of earlier attempts that no call has asked for. */
    unasked: () => earlierKeys.filter((key) => sizes.has(key) && !asked.has(key)),
  };
}

/** The ranges of keys are in the order of bytes, which differs only where both bounds agree. */
function byCodeUnits(one: string, other: string): number {
  return one < other ? -1 : one > other ? 1 : 0;
}

/** The position of the first key that is not below this one. */
function firstFrom(keys: readonly string[], from: string): number {
  let [low, high] = [0, keys.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (keys[middle]! < from) low = middle + 1;
    else high = middle;
  }
  return low;
}
