import { backoffMs } from "../../../base/backoff.ts";
import { type Clock, sleep } from "../../../base/clock.ts";
import { hasCode } from "../../../base/errors.ts";
import type { Ids } from "../../../base/ids.ts";
import type { Logger } from "../../../base/log.ts";
import type { Random } from "../../../base/random.ts";
import type { Header } from "../../conversation/header.ts";
import type { CommitResult, Head, LogRecord } from "../journal.ts";
import type { Streams } from "./create-streams.ts";
import { unavailable } from "./log-errors.ts";
import { firstChain, type Mark } from "./message.ts";
import type { EarlierLives, LogLife } from "./streams.ts";

/** What a log holds that goes on in another stream. Each record keeps its offset. */
export type LifeContent = {
  /** The first offset of the new life. All records before it are archived. */
  readonly from: number;
  /** The last offset of the life before it. */
  readonly through: number;
  /** The record at an offset; undefined where the log had a message of another kind. */
  recordAt(offset: number): Promise<LogRecord | undefined>;
  /** Sessions with work under way whose last record is before `from`. */
  readonly busy: readonly Header[];
  readonly follows: EarlierLives;
};

export type NewLifeParts = {
  streams: Streams;
  clock: Clock;
  random: Random;
  ids: Ids;
  log: Logger;
  /**
   * Stores behind the last message of a stream that this owner leaves it. False: another pod has the log.
   * Rejects with `store_unavailable` if that isn't known.
   */
  leave: (life: LogLife, at: Head) => Promise<boolean>;
  /** Stores a message of this owner right after a head, as `Log.commit` does. */
  store: (life: LogLife, at: Head, owner: Owner, message: LifeMessage) => Promise<CommitResult>;
};

type Owner = Pick<Head, "term" | "owner" | "host">;

/** A message of a new life. `owner` fills a place that had no record. */
export type LifeMessage = { readonly recordId: string } & (
  | { readonly kind: "record"; readonly record: LogRecord }
  | { readonly kind: "owner" }
  | { readonly kind: "mark"; readonly mark: Mark }
);

const tries = 10;
const backoff = { baseMs: 50, maxMs: 1_000 };

/**
 * Gives a log another stream, with all that its owner has of it. No pod sees that stream before it is whole:
 * it counts once the meta message names it. So that no other pod stores into the old stream until then, its
 * last message says that its owner leaves it, and a pod that takes it all the same changes the meta message
 * first. `fenced`: another pod has the log, or its next life.
 */
export async function makeNewLife(
  at: Head,
  content: LifeContent,
  parts: NewLifeParts,
): Promise<"made" | "fenced"> {
  const { streams, clock, random, ids, log } = parts;
  const { logId } = at;
  const next: LogLife = {
    logId,
    incarnation: ids.next(),
    firstSequence: content.from,
    follows: content.follows,
  };
  let isFilled = false;
  for (let nth = 1; nth <= tries; nth++) {
    // Read before the old stream is left: a pod that takes it meanwhile changes it, and then it doesn't fit.
    const read = await streams.meta();
    const present = read.meta.logs[logId]?.incarnation;
    if (present === next.incarnation) return "made";
    if (present !== at.incarnation) {
      // A server that is behind names a life before this one, or none.
      const isOld = present === undefined || content.follows.incarnations.includes(present);
      if (!isOld) return "fenced";
      await sleep(clock, backoffMs(nth, random, backoff));
      continue;
    }
    const life = { logId, ...read.meta.logs[logId]! };
    if (!(await parts.leave(life, at))) return "fenced";
    if (!isFilled) await fill(next, at, content, parts);
    isFilled = true;
    if ((await streams.change(read, next)) === true) {
      const { from, through } = content;
      const lives = { old: at.incarnation, new: next.incarnation };
      log.error(
        { log: logId, ...lives, from, through },
        "servers have lost messages of a session log: its owner has stored them again, in a new stream",
      );
      return "made";
    }
    await sleep(clock, backoffMs(nth, random, backoff));
  }
  throw unavailable(`the new stream of log ${logId} isn't named by the meta message yet`);
}

async function fill(
  life: LogLife,
  owner: Head,
  { from, through, recordAt, busy }: LifeContent,
  { streams, ids, clock, random, store }: NewLifeParts,
): Promise<void> {
  const { logId, incarnation } = life;
  const unowned = { term: 0, owner: null, host: null, recordId: "" };
  let head: Head = { logId, incarnation, ...unowned, offset: from - 1 };
  const add = async (message: LifeMessage): Promise<void> => {
    const at = head;
    for (let nth = 1; ; nth++) {
      try {
        const result = await store(life, at, owner, message);
        // No other pod knows the stream.
        if (result.type !== "committed") throw unavailable(`log ${logId} has no new stream yet`);
        head = result.head;
        return;
      } catch (error) {
        const mayRetry = hasCode(error, "unknown_outcome", "store_unavailable");
        if (!mayRetry || nth === tries) throw error;
        await sleep(clock, backoffMs(nth, random, backoff));
      }
    }
  };
  await streams.make(life);
  for (let offset = from; offset <= through; offset++) {
    const record = await recordAt(offset);
    if (record) await add({ kind: "record", recordId: record.recordId, record });
    else await add({ kind: "owner", recordId: ids.next() });
  }
  const mark = { archived: from - 1, chain: firstChain(incarnation), busy };
  await add({ kind: "mark", recordId: ids.next(), mark });
}
