import type { Clock } from "../../base/clock.ts";
import type { Head, Log } from "./journal.ts";
import { logOf } from "./placement.ts";

/** The heads of all logs as last read, shared by all callers. */
export type Heads = {
  /** Heads read at most `maxAgeMs` ago. */
  all(maxAgeMs: number): Promise<readonly Head[]>;
  /** The head of a session's log; undefined if there are no logs yet. */
  of(sessionId: string, maxAgeMs: number): Promise<Head | undefined>;
  /** The heads as last read, however old. */
  readonly last: readonly Head[];
  put(heads: readonly Head[], atMs: number): void;
  /** Stores a head that was read alone, so the other heads get no newer. */
  putOne(head: Head, atMs: number): void;
};

export function createHeads({
  journal,
  clock,
}: {
  journal: Pick<Log, "heads">;
  clock: Clock;
}): Heads {
  let last: readonly Head[] = [];
  let seenMs = -Infinity;
  /** When a head was last stored alone. */
  const seenAloneMs = new Map<number, number>();
  let reading: Promise<readonly Head[]> | undefined;

  const put = (heads: readonly Head[], atMs: number): void => {
    if (atMs < seenMs) return;
    // A read that began before `putOne` may hold an older version of that head.
    last = heads.map((head) => {
      const isOlder = atMs <= (seenAloneMs.get(head.logId) ?? -Infinity);
      return (isOlder && last[head.logId]) || head;
    });
    seenMs = atMs;
  };
  const putOne = (head: Head, atMs: number): void => {
    if (atMs < seenMs) return;
    // A read that began earlier may have ended since and seen a later owner.
    const known = last[head.logId];
    if (known?.incarnation === head.incarnation && known.term > head.term) return;
    last = last.map((each) => (each.logId === head.logId ? head : each));
    seenAloneMs.set(head.logId, atMs);
  };
  const readHeads = async (): Promise<readonly Head[]> => {
    const startedMs = clock.monotonic();
    try {
      const heads = await journal.heads();
      put(heads, startedMs);
      return last;
    } finally {
      reading = undefined;
    }
  };
  const all: Heads["all"] = async (maxAgeMs) => {
    const oldestMs = clock.monotonic() - maxAgeMs;
    // An empty list is never enough, whatever its age: logs may have been created since.
    const isKnown = () => last.length > 0 && seenMs >= oldestMs;
    if (isKnown()) return last;
    if (reading) {
      // A read that began earlier may be older than this caller allows.
      await reading;
      if (isKnown()) return last;
    }
    return (reading ??= readHeads());
  };
  return {
    all,
    put,
    putOne,
    get last() {
      return last;
    },
    async of(sessionId, maxAgeMs) {
      const heads = await all(maxAgeMs);
      return heads.length === 0 ? undefined : heads[logOf(sessionId, heads.length)];
    },
  };
}
