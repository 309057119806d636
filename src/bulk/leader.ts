import type { Clock } from "../base/clock.ts";
import { dayMs } from "../base/durations.ts";
import { hasCode, messageOf } from "../base/errors.ts";
import { createLeaderPass } from "../base/semaphore.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import { fingerprintVersion, groupVersion } from "../dead-letters/fingerprint.ts";
import type { Database } from "../store/database.ts";
import { untilKnown, writeUntilKnown } from "../store/retry.ts";
import { isKnownFilter, type StoredBulk, toStoredBulk } from "./bulk.ts";
import { openBulks, pruneBulks, stopBulk, writeBatch } from "./sql.ts";
import { walkMatches } from "./walk.ts";

export type BulkLeaderOptions = {
  database: Database;
  clock: Clock;
  random: Random;
  log?: Logger;
  /** How many tasks one batch has. Default 500. */
  batchTasks?: number;
  /** Whether this pod still leads. Default: it does. */
  leads?: () => boolean;
  /** Called after a batch, so that a pod in this process claims without waiting for a notification. */
  onActed?: () => void;
};

// A transaction holds its tasks until it ends, and so do the pods that end them.
const defaultBatchTasks = 500;
// A batch that has found little ends here, so that a stop and another leader wait for no long walk.
const pagesPerBatch = 10;
// The next pass goes on, and begins with the next beat.
const roundsPerPass = 20;
const bulksKeptMs = 30 * dayMs;
const pruneEveryMs = 10 * 60_000;

/**
 * The leader's work on bulks, once per beat: one batch of each in turn. A batch is a transaction that acts
 * on its tasks, moves the bulk on and counts, so that another leader goes on exactly behind it.
 */
export function createBulkLeader(options: BulkLeaderOptions) {
  const { database, clock, random, log = silentLogger } = options;
  const { leads = () => true, onActed = () => {}, batchTasks = defaultBatchTasks } = options;
  let prunedMs = clock.monotonic();

  const send = (statements: Parameters<typeof writeUntilKnown>[1], notify = false) =>
    writeUntilKnown(database, statements, { clock, random, ...untilKnown, notify });

  const advance = async (bulk: StoredBulk): Promise<void> => {
    const { bulkId, action, filter, as, lastTaskId, untilId, createdAtMs } = bulk;
    const version = filter.group === undefined ? fingerprintVersion : groupVersion(filter.group);
    // A later release has made that group by its own rules, or filters by more, and will continue the bulk.
    if (version === undefined || version > fingerprintVersion || !isKnownFilter(filter)) return;
    if (version < fingerprintVersion) {
      await send(stopBulk(bulkId));
      log.warn({ bulk: bulkId }, "bulk stopped: its group has another id in this release");
      return;
    }
    const walk = {
      action,
      filter,
      as,
      after: lastTaskId ?? "",
      until: { taskId: untilId, atMs: createdAtMs },
    };
    const walked = await walkMatches(database, walk, {
      count: batchTasks,
      maxPages: pagesPerBatch,
    });
    const isActing = walked.seen.length > 0;
    await send(writeBatch({ bulk, ...walked }), isActing);
    if (isActing) onActed();
    if (walked.isLast) log.info({ bulk: bulkId, action }, "bulk has gone through all that matched");
  };

  /**
   * Another transaction may hold a task of one bulk: the other bulks do not wait for it. Returns whether
   * this pass may go on with this one.
   */
  const advanceUnlessBusy = async (bulk: StoredBulk): Promise<boolean> => {
    try {
      await advance(bulk);
      return true;
    } catch (error) {
      if (!hasCode(error, "store_busy")) throw error;
      const fields = { bulk: bulk.bulkId, error: messageOf(error) };
      log.warn(fields, "bulk blocked by a lock, retrying with the next pass");
      return false;
    }
  };

  /** Does a bounded part of the work. The next pass does the rest. */
  const work = async (): Promise<void> => {
    const blocked = new Set<string>();
    for (let round = 0; round < roundsPerPass && leads(); round++) {
      const all = (await database.read(openBulks())).map(toStoredBulk);
      const open = all.filter(({ bulkId }) => !blocked.has(bulkId));
      if (open.length === 0) break;
      for (const bulk of open) {
        if (!(await advanceUnlessBusy(bulk))) blocked.add(bulk.bulkId);
      }
    }
    if (clock.monotonic() - prunedMs < pruneEveryMs) return;
    prunedMs = clock.monotonic();
    await database.write([pruneBulks(bulksKeptMs)]);
  };

  return createLeaderPass(work, { clock, log, failed: "bulk pass failed" });
}
