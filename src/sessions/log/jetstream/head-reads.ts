import type { Clock } from "../../../base/clock.ts";
import { hasCode } from "../../../base/errors.ts";
import { settledWithin } from "../../../base/timeout.ts";
import type { Head } from "../journal.ts";
import type { Streams } from "./create-streams.ts";
import { headBefore, type ReadEnd } from "./log-end.ts";
import type { LogLife } from "./streams.ts";

/**
 * The heads of all logs. Their streams elect their leaders one by one, and so does that of the meta message:
 * a log whose stream has one waits for no other.
 */
export type HeadReads = {
  /** A head that can't be read now is the one that was read last. */
  heads(): Promise<Head[]>;
  /** Whether servers haven't said for a while where a log ends. If so, they are asked again. */
  isUnanswered(logId: number): boolean;
};

export type HeadReadsParts = {
  clock: Clock;
  streams: Pick<Streams, "lives">;
  readEnd: (life: LogLife) => Promise<ReadEnd>;
};

/** How long what is known is waited for. An answer that comes later counts too. */
const headLimitMs = 100;
const unansweredLimitMs = 1_000;

export function createHeadReads({ clock, streams, readEnd }: HeadReadsParts): HeadReads {
  /** The heads of logs as they were read last. */
  const known = new Map<number, Head>();
  /** Since when servers don't say where a log ends. */
  const unansweredMs = new Map<number, number>();
  /** The logs of which that is being asked. */
  const asking = new Set<number>();

  /**
   * A log without a leader for the moment keeps the head that it had, and holds up no other: the fence
   * decides. Neither does one that can't be served, of which a pod that takes it says why.
   */
  const readHead = async (life: LogLife): Promise<Head> => {
    const { logId } = life;
    const last = known.get(logId);
    const isKnown = last?.incarnation === life.incarnation;
    const reading = readEnd(life).then(({ head }) => {
      known.set(logId, head);
      unansweredMs.delete(logId);
      return head;
    });
    const unanswered = (head: Head): Head => {
      if (!unansweredMs.has(logId)) unansweredMs.set(logId, clock.monotonic());
      return head;
    };
    try {
      if (!isKnown) return await reading;
      return (await settledWithin(clock, headLimitMs, reading)) ?? unanswered(last);
    } catch (error) {
      const isDamaged = hasCode(error, "store_corrupt", "store_missing");
      if (isDamaged) return isKnown ? last : headBefore(life);
      if (!isKnown || !hasCode(error, "store_unavailable")) throw error;
      return unanswered(last);
    }
  };

  /** A pod that tries to take one log again and again may read no heads meanwhile. */
  const askAgain = async (logId: number): Promise<void> => {
    if (asking.has(logId)) return;
    asking.add(logId);
    try {
      const life = (await streams.lives()).find((each) => each.logId === logId);
      if (life) await readHead(life);
    } catch {
      // The next call asks again.
    } finally {
      asking.delete(logId);
    }
  };

  return {
    async heads() {
      const before = known.size === 0 ? [] : await streams.lives();
      const early = new Map(before.map((life) => [lifeKey(life), readHead(life)]));
      for (const reading of early.values()) reading.catch(() => {});
      const lives = await streams.lives({ isFresh: true, limitMs: headLimitMs });
      return Promise.all(lives.map((life) => early.get(lifeKey(life)) ?? readHead(life)));
    },
    isUnanswered(logId) {
      const sinceMs = unansweredMs.get(logId);
      const isLong = sinceMs !== undefined && clock.monotonic() - sinceMs >= unansweredLimitMs;
      if (isLong) void askAgain(logId);
      return isLong;
    },
  };
}

/** Logs may share an incarnation, and one of them may have had several streams under it. */
function lifeKey({ logId, incarnation, stream = incarnation }: LogLife): string {
  return `${logId} ${stream}`;
}
