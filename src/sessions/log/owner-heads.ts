import type { Clock } from "../../base/clock.ts";
import { logOf } from "./group.ts";
import type { Head, Journal } from "./journal.ts";

/** Where logs stood when they were looked at last, shared by all who ask. */
export type Heads = {
  /** No older than that. */
  all(maxAgeMs: number): Promise<readonly Head[]>;
  /** The head of a session's log; undefined where there are no logs yet. */
  of(sessionId: string, maxAgeMs: number): Promise<Head | undefined>;
  /** As they were seen last, by whoever has looked. */
  readonly last: readonly Head[];
  put(heads: readonly Head[], atMs: number): void;
  /** One that was seen by itself, which says nothing of the others. */
  putOne(head: Head, atMs: number): void;
};

export function createHeads({ journal, clock }: { journal: Journal; clock: Clock }): Heads {
  let last: readonly Head[] = [];
  let seenMs = -Infinity;
  /** When a head was seen by itself. */
  const aloneMs = new Map<number, number>();
  let looking: Promise<readonly Head[]> | undefined;

  const put = (heads: readonly Head[], atMs: number): void => {
    if (atMs < seenMs) return;
    // A look that began before one was seen by itself may have seen that one as it was before.
    last = heads.map((head) => {
      const isOlder = atMs <= (aloneMs.get(head.logId) ?? -Infinity);
      return (isOlder && last[head.logId]) || head;
    });
    seenMs = atMs;
  };
  const putOne = (head: Head, atMs: number): void => {
    if (atMs < seenMs) return;
    // A look that began before may have ended since, and have seen the log with a later owner.
    const known = last[head.logId];
    if (known?.incarnation === head.incarnation && known.term > head.term) return;
    last = last.map((each) => (each.logId === head.logId ? head : each));
    aloneMs.set(head.logId, atMs);
  };
  const look = async (): Promise<readonly Head[]> => {
    const startedMs = clock.monotonic();
    try {
      const heads = await journal.heads();
      put(heads, startedMs);
      return last;
    } finally {
      looking = undefined;
    }
  };
  const all: Heads["all"] = async (maxAgeMs) => {
    const oldestMs = clock.monotonic() - maxAgeMs;
    // However old it may be, it must have been seen; where there were none, there may be some by now.
    const isKnown = () => last.length > 0 && seenMs >= oldestMs;
    if (isKnown()) return last;
    if (looking) {
      // One that began before may have seen less than this caller may rely on.
      await looking;
      if (isKnown()) return last;
    }
    return (looking ??= look());
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
