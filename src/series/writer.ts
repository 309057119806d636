import type { Clock } from "../base/clock.ts";
import { minuteMs } from "../base/durations.ts";
import { messageOf } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { settledWithin } from "../base/timeout.ts";
import type { Database } from "../store/database.ts";
import { encodeCounts } from "./counts.ts";
import { startOf } from "./fold.ts";
import type { Recorder } from "./recorder.ts";
import { type SeriesRow, storeCounts, toClosedTo } from "./sql.ts";

export type SeriesWriterOptions = {
  podId: string;
  database: Pick<Database, "write">;
  clock: Clock;
  recorder: Recorder;
  /** The store's time; undefined as long as it isn't known. */
  storeNowMs: () => number | undefined;
  /** Called at the end of a minute, to count what is only known then. */
  onMinute?: () => void;
  log?: Logger;
};

/** After that the leader may fold the minute, and a write would come too late. */
export const sentForMs = 2 * minuteMs;
const sendAgainMs = 5_000;
const stopTimeoutMs = 1_000;

type Unsent = { readonly rows: readonly SeriesRow[]; readonly sinceMs: number };

/**
 * Writes what its pod has counted, once a minute, as that minute's counts in all: written twice they are
 * the same. A minute in which nothing was counted is not written.
 */
export function createSeriesWriter(options: SeriesWriterOptions) {
  const { podId, database, clock, recorder, storeNowMs, log = silentLogger } = options;
  const { onMinute = () => {} } = options;
  /** The minute that is being counted. */
  let minute: number | undefined;
  let unsent: Unsent[] = [];
  let sending: Promise<void> | undefined;
  let notBeforeMs = -Infinity;
  /** How often the store's clock was set back into another minute. */
  let setBack = 0;

  /** Minutes that were counted before the clock was set back are another writer's, and stay. */
  const writer = () => (setBack === 0 ? podId : `${podId} ${setBack}`);

  const endMinute = (at: number): void => {
    onMinute();
    if (recorder.isEmpty) return;
    const rows = [...recorder.take()].map(([subject, counts]) => {
      return { span: minuteMs, at, subject, pod: writer(), counts: encodeCounts(counts) };
    });
    unsent.push({ rows, sinceMs: clock.monotonic() });
  };

  const send = async (): Promise<void> => {
    const sent = [...unsent];
    try {
      const statements = storeCounts(sent.flatMap(({ rows }) => rows));
      const closedTo = toClosedTo(await database.write(statements, { lossy: true }));
      unsent = unsent.filter((each) => !sent.includes(each));
      const late = sent.filter(({ rows }) => rows[0]!.at <= closedTo);
      if (late.length > 0)
        log.warn(
          { pod: podId, minutes: late.length },
          "series of minutes lost: closed already, as after the store's clock was set back",
        );
    } catch (error) {
      notBeforeMs = clock.monotonic() + sendAgainMs;
      log.debug({ pod: podId, error: messageOf(error) }, "series not written, trying again");
    }
    sending = undefined;
  };

  const sendUnsent = (): void => {
    const nowMs = clock.monotonic();
    const tooOld = unsent.filter(({ sinceMs }) => nowMs - sinceMs >= sentForMs);
    if (tooOld.length > 0) {
      unsent = unsent.filter((each) => !tooOld.includes(each));
      log.warn(
        { pod: podId, minutes: tooOld.length },
        "series of minutes lost: not written in time",
      );
    }
    if (sending || unsent.length === 0 || nowMs < notBeforeMs) return;
    sending = send();
  };

  return {
    /** Called a few times a second. */
    tick(): void {
      const nowMs = storeNowMs();
      if (nowMs === undefined) return;
      const now = startOf(nowMs, minuteMs);
      minute ??= now;
      if (now !== minute) {
        endMinute(minute);
        if (now < minute) setBack++;
        minute = now;
      }
      sendUnsent();
    },
    /** Resolves when no write is under way. */
    settled: async (): Promise<void> => sending,
    /** Writes what the pod has counted of the present minute. */
    async stop(): Promise<void> {
      if (sending) await settledWithin(clock, stopTimeoutMs, sending);
      const nowMs = storeNowMs();
      if (nowMs !== undefined) endMinute(minute ?? startOf(nowMs, minuteMs));
      minute = undefined;
      notBeforeMs = -Infinity;
      sendUnsent();
      if (sending) await settledWithin(clock, stopTimeoutMs, sending);
    },
  };
}
