import type { Clock } from "../../../base/clock.ts";
import { type FlotillaError, hasCode, messageOf } from "../../../base/errors.ts";
import type { Logger } from "../../../base/log.ts";
import { settledWithin } from "../../../base/timeout.ts";
import type { Header } from "../../conversation/header.ts";
import type { StreamLog } from "../jetstream/log.ts";
import type { LogTail } from "../jetstream/recovery.ts";
import type { Head } from "../journal.ts";
import { createUnarchived, type LoggedRecord, type Unarchived } from "./unarchived.ts";

/**
 * Logs of other pods that this one reads along with, because much of them isn't archived and it is the next
 * to take them. What it has read, it need not read once their owner is gone: only the rest, up to the
 * message that the log is taken with. All of it is committed, and its chain is checked, as in any replay.
 */
export type Tails = {
  /** Reads on in these logs, each up to its head, and begins with those that are new. Never rejects. */
  follow(heads: readonly Head[]): Promise<void>;
  /** What was read of a log that this pod has taken. It isn't read along with any more. */
  take(head: Head): Promise<WarmLog | undefined>;
  /** How many logs are read along with. */
  readonly size: number;
};

/** A log that was read along with, and what was found in it. */
export type WarmLog = { readonly tail: LogTail; readonly replayed: Replayed };

/** What a replay finds in a log above its last mark. */
export type Replayed = {
  readonly unarchived: Unarchived;
  /** Sessions with work under way, and the records that said so. */
  readonly busy: Map<string, BusySession>;
};

export type BusySession = { readonly header: Header; readonly offset: number };

/** An owner that is gone names no log any more, and its log is taken within a few seconds. */
const keptMs = 30_000;
/** How long a pod that has taken a log waits for what it is reading of it. */
const endMs = 500;

type Followed = {
  readonly incarnation: string;
  warm: WarmLog | undefined;
  reading: Promise<void> | undefined;
  wantedMs: number;
};

export function createReplayed(maxHeldBytes: number | undefined): Replayed {
  return { unarchived: createUnarchived({ maxHeldBytes }), busy: new Map() };
}

export function addReplayed(
  { unarchived, busy }: Replayed,
  logged: LoggedRecord,
  nowMs: number,
): void {
  unarchived.add(logged, nowMs);
  const { offset } = logged;
  for (const header of logged.record.headers) {
    const isBusy = header.work !== null && header.status !== "deleted";
    if (isBusy) busy.set(header.sessionId, { header, offset });
    else busy.delete(header.sessionId);
  }
}

function hasRead({ warm }: Followed): boolean {
  return (warm?.replayed.unarchived.records ?? 0) > 0;
}

function wasTrimmed(error: FlotillaError): boolean {
  return error.details?.["begins"] !== undefined;
}

export type TailsParts = {
  stream: Pick<StreamLog, "openTail">;
  clock: Clock;
  log: Logger;
  maxHeldBytes?: number | undefined;
};

export function createTails({ stream, clock, log: logger, maxHeldBytes }: TailsParts): Tails {
  const followed = new Map<number, Followed>();

  const open = async (head: Head): Promise<WarmLog> => {
    const replayed = createReplayed(maxHeldBytes);
    const tail = await stream.openTail(head, (each) =>
      addReplayed(replayed, each, clock.monotonic()),
    );
    logger.info(
      { log: head.logId },
      "reading along with a session log that is far ahead of its archive",
    );
    return { tail, replayed };
  };

  const readOn = async (each: Followed, head: Head): Promise<void> => {
    try {
      each.warm ??= await open(head);
      const { tail, replayed } = each.warm;
      await tail.readTo(head.offset);
      replayed.unarchived.archived(tail.mark.archived);
    } catch (error) {
      // A server that is behind has the rest later. What was trimmed meanwhile is archived, and it begins
      // anew behind that.
      const isBehind = hasCode(error, "store_unavailable") && !wasTrimmed(error) && hasRead(each);
      if (!isBehind) each.warm = undefined;
      const fields = { log: head.logId, error: messageOf(error) };
      logger.debug(fields, "reading along with a session log failed, retrying");
    }
  };

  return {
    get size() {
      return followed.size;
    },

    async follow(heads) {
      const nowMs = clock.monotonic();
      for (const head of heads) {
        const known = followed.get(head.logId);
        const each: Followed =
          known?.incarnation === head.incarnation
            ? known
            : {
                incarnation: head.incarnation,
                warm: undefined,
                reading: undefined,
                wantedMs: nowMs,
              };
        followed.set(head.logId, each);
        each.wantedMs = nowMs;
        each.reading ??= readOn(each, head).finally(() => (each.reading = undefined));
      }
      for (const [logId, { wantedMs }] of followed) {
        if (nowMs - wantedMs > keptMs) followed.delete(logId);
      }
      await Promise.all([...followed.values()].flatMap(({ reading }) => reading ?? []));
    },

    async take({ logId, incarnation }) {
      const each = followed.get(logId);
      followed.delete(logId);
      if (each?.incarnation !== incarnation) return undefined;
      if (each.reading) {
        const ended = each.reading.then(() => true);
        if (!(await settledWithin(clock, endMs, ended))) return undefined;
      }
      return each.warm;
    },
  };
}
