import { backoffMs } from "../../../base/backoff.ts";
import type { Clock } from "../../../base/clock.ts";
import { hasCode, messageOf, storeWideCodes } from "../../../base/errors.ts";
import type { Logger } from "../../../base/log.ts";
import type { Random } from "../../../base/random.ts";
import type { Database } from "../../../store/database.ts";
import { readFirstWatermark } from "../sql/archive.ts";
import type { Flusher } from "./flusher.ts";
import { createLogFaults, isOfLog } from "./log-faults.ts";
import type { ServedLog } from "./served-log.ts";

/** Moves the logs of a process into the database in turn, and knows from that whether it is there. */
export type Flushes = {
  /** Whether the database didn't take the last flush. */
  readonly isAway: boolean;
  /** Has the logs flushed soon, each once. */
  wake(): void;
  /** Moves one transaction of each log now. */
  now(): Promise<void>;
  start(): void;
  /** Resolves when no flush is under way. */
  stop(): Promise<void>;
};

export type FlushesParts = {
  flusher: Pick<Flusher, "flush">;
  served: ReadonlyMap<number, ServedLog>;
  database: Pick<Database, "read">;
  clock: Clock;
  random: Random;
  log: Logger;
  /** Whether the database was away when this process started. Default: it was there. */
  isAway?: boolean | undefined;
  /** Called when the archive has more of these sessions. */
  onArchived?: ((sessionIds: ReadonlySet<string>) => void) | undefined;
};

/** Between two transactions of one log. */
const flushMs = 100;
const awayBackoff = { baseMs: 100, maxMs: 5_000 };

export function createFlushes(parts: FlushesParts): Flushes {
  const { flusher, served, database, clock, random, log } = parts;
  const message = "a session log isn't archived, retrying";
  const faults = createLogFaults<ServedLog>({ ...parts, message });
  let failures = parts.isAway === true ? 1 : 0;
  let isRunning = false;
  let flushing: Promise<void> | undefined;
  let cancel: (() => void) | undefined;

  const wake = (delayMs = flushMs): void => {
    if (!isRunning || flushing || cancel) return;
    cancel = clock.after(delayMs, () => {
      cancel = undefined;
      flushing = flushAll().finally(() => {
        flushing = undefined;
        const isBehind = (each: ServedLog) =>
          each.refusal === undefined && each.unarchived.records > 0 && faults.mayTry(each);
        if (failures > 0) wake(backoffMs(failures, random, awayBackoff));
        else if ([...served.values()].some(isBehind)) wake();
      });
    });
  };

  const flushAll = async (): Promise<void> => {
    for (const each of served.values()) {
      if (each.refusal !== undefined || each.isOver || !faults.mayTry(each)) continue;
      try {
        const { sessionIds, bytes, hasAnswered } = await flusher.flush(each);
        each.addArchived(bytes);
        if (hasAnswered) answered();
        faults.worked(each);
        if (failures === 0) each.forgetKept();
        if (sessionIds.size > 0) parts.onArchived?.(sessionIds);
      } catch (error) {
        if (each.isOver) continue;
        const isOwn = each.refusal !== undefined || isOfLog(error);
        if (isOwn || !hasCode(error, ...storeWideCodes)) {
          faults.failed(each, error);
          continue;
        }
        failures++;
        const fields = { log: each.logId, error: messageOf(error) };
        if (failures === 1) log.warn(fields, "the archive doesn't take records, retrying");
        // Another log would wait for the same database.
        return;
      }
    }
    if (failures > 0) await lookForDatabase();
  };

  /** No log has anything to store, so that nothing else tells whether the database is back. */
  const lookForDatabase = async (): Promise<void> => {
    try {
      await database.read(readFirstWatermark());
      answered();
    } catch {
      failures++;
    }
  };

  const answered = (): void => {
    if (failures > 0) log.info({}, "the archive is back");
    failures = 0;
  };

  return {
    get isAway() {
      return failures > 0;
    },
    wake: () => wake(),
    async now() {
      await flushing;
      await flushAll();
    },
    start() {
      isRunning = true;
      wake();
    },
    async stop() {
      isRunning = false;
      cancel?.();
      cancel = undefined;
      await flushing;
    },
  };
}
