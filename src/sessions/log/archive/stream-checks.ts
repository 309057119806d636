import type { Clock } from "../../../base/clock.ts";
import { messageOf } from "../../../base/errors.ts";
import type { Logger } from "../../../base/log.ts";
import type { LogStreams } from "../jetstream/create-streams.ts";
import { type ChangedStream, sentenceOf } from "../jetstream/changed-streams.ts";
import type { StreamLog } from "../jetstream/log.ts";
import type { Head } from "../journal.ts";

type Log = Pick<Head, "logId" | "incarnation">;

/**
 * Whether the streams of a pod's logs are still as they were made. What was changed is said once, and once
 * more when it was set back.
 */
export type StreamChecks = {
  /** Looks at the streams of these logs that are due. Never rejects. */
  look(logs: readonly Log[]): Promise<void>;
  /** Looks at the stream of a log that is about to be served. Never rejects. */
  lookAt(log: Log): Promise<void>;
  /** A message of the log wasn't stored: its stream is looked at soon. */
  doubt(log: Log): void;
  /** Why nothing may be acknowledged on a log. Undefined: it may. */
  refusalOf(log: Log): string | undefined;
  /** How many streams of these logs were changed. */
  changedOf(logs: readonly Log[]): number;
};

/** How often a stream is looked at that was as it was made. One that wasn't is at each call. */
const lookMs = 10_000;

type Known = {
  readonly incarnation: string;
  lookedMs: number;
  looking: Promise<void> | undefined;
  found: LogStreams;
  /** How often in a row messages were missing that its owner hasn't trimmed. */
  purged: number;
};

export function createStreamChecks({
  stream,
  clock,
  log: logger,
}: {
  stream: Pick<StreamLog, "streams" | "lastMark">;
  clock: Clock;
  log: Logger;
}): StreamChecks {
  const known = new Map<number, Known>();

  const knownOf = ({ logId, incarnation }: Log): Known => {
    const before = known.get(logId);
    if (before?.incarnation === incarnation) return before;
    const found = { own: undefined, shared: [], firstSequence: 0 };
    const each = { incarnation, lookedMs: -Infinity, looking: undefined, found, purged: 0 };
    known.set(logId, each);
    return each;
  };

  const read = async (log: Log, each: Known): Promise<void> => {
    try {
      const found = await stream.streams.changed(log);
      if (!found) return;
      const before = streamsOf(each.found);
      const now = streamsOf(found);
      each.found = found;
      lookForPurge(log, each);
      for (const change of now) {
        const old = before.find(({ stream: name }) => name === change.stream);
        if (!old || sentenceOf(old) !== sentenceOf(change)) tell(log, change, found.own === change);
      }
      for (const { stream: name } of before) {
        if (now.some(({ stream: other }) => other === name)) continue;
        logger.info({ log: log.logId, stream: name }, "a stream is as it was made again");
      }
    } catch (error) {
      // What was found last counts until servers say otherwise.
      const fields = { log: log.logId, error: messageOf(error) };
      logger.debug(fields, "the settings of a stream can't be read, retrying");
    }
  };

  /** Owners trim up to their last mark. One that was paused knows an old one, and hears so before the next look. */
  const lookForPurge = ({ logId: log }: Log, each: Known): void => {
    const archived = stream.lastMark(log)?.archived;
    const isPurged = archived !== undefined && each.found.firstSequence > archived + 1;
    each.purged = isPurged ? each.purged + 1 : 0;
    if (each.purged === 1) each.lookedMs = -Infinity;
    if (each.purged !== 2) return;
    const { firstSequence } = each.found;
    logger.error(
      { log, archived, firstSequence },
      "messages of a session log were purged by hand: what the database lacks is in this process alone until it has it",
    );
  };

  const tell = ({ logId: log }: Log, change: ChangedStream, isOwn: boolean): void => {
    const { stream: name, isLost, settings } = change;
    const stops = isOwn && isDangerous(change);
    const ending = stops ? ": its log takes no messages until that is put right" : "";
    if (isLost) logger.error({ log, stream: name }, `a stream is gone${ending}`);
    for (const { setting, value, wanted, isDangerous: losesMessages } of settings) {
      const fields = { log, stream: name, setting, value, set: wanted };
      if (losesMessages) {
        logger.error(fields, `a stream was changed by hand and could lose messages${ending}`);
      } else logger.warn(fields, "a stream was changed by hand: set it back");
    }
  };

  const lookAt = (log: Log): Promise<void> => {
    const each = knownOf(log);
    each.lookedMs = clock.monotonic();
    each.looking ??= read(log, each).finally(() => (each.looking = undefined));
    return each.looking;
  };

  return {
    async look(logs) {
      const nowMs = clock.monotonic();
      const isDue = (log: Log): boolean => {
        const { lookedMs, found } = knownOf(log);
        return nowMs - lookedMs >= lookMs || streamsOf(found).length > 0;
      };
      await Promise.all(logs.filter(isDue).map(lookAt));
    },
    lookAt,
    doubt(log) {
      knownOf(log).lookedMs = -Infinity;
    },
    refusalOf(log) {
      const { own } = knownOf(log).found;
      if (!own || !isDangerous(own)) return undefined;
      return `log ${log.logId} takes no messages: ${sentenceOf(own)}`;
    },
    changedOf: (logs) => logs.reduce((sum, log) => sum + streamsOf(knownOf(log).found).length, 0),
  };
}

function streamsOf({ own, shared }: Pick<LogStreams, "own" | "shared">): readonly ChangedStream[] {
  return own ? [own, ...shared] : shared;
}

function isDangerous({ isLost, settings }: ChangedStream): boolean {
  return isLost || settings.some((each) => each.isDangerous);
}
