import type { Clock } from "../base/clock.ts";
import { dayMs } from "../base/durations.ts";
import type { Ids } from "../base/ids.ts";
import { createLeaderPass } from "../base/semaphore.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import type { Database } from "../store/database.ts";
import { emitEntry } from "./act.ts";
import {
  countEntries,
  deleteOldEntries,
  deleteOldestOf,
  endFull,
  fullAction,
  hasOldEntries,
  markFull,
} from "./sql.ts";

/** How long the audit is kept, and how large it gets. */
export type AuditConfig = {
  /** How long entries are kept. Default 400 days. */
  keptMs?: number;
  /**
   * How many entries are kept. Beyond it the oldest ones of programs are deleted; where there are none,
   * acts are refused until there is room. Default 10,000,000.
   */
  maxEntries?: number;
};

export type AuditLeaderOptions = Required<AuditConfig> & {
  database: Database;
  clock: Clock;
  ids: Ids;
  log?: Logger;
};

const pruneEveryMs = 60_000;
// Counting reads an index, and the bound need not be exact.
const countEveryMs = 10 * 60_000;
const entriesPerDelete = 1_000;
// The next pass goes on, so that a pass doesn't take for ever.
const deletesPerPass = 100;
const warnedShare = 0.9;
/** Its entries go first, because signals that a program sends may be many. */
const firstToGo = "program";

/** The leader's work on the audit: deletes what is old, and keeps it within its bound. */
export function createAuditLeader(options: AuditLeaderOptions) {
  const { database, clock, ids, keptMs, maxEntries, log = silentLogger } = options;
  let prunedMs = -Infinity;
  let countedMs = -Infinity;

  const deleteOld = async (): Promise<void> => {
    for (let at = 0; at < deletesPerPass; at++) {
      if ((await database.read(hasOldEntries(keptMs))).length === 0) return;
      await database.write([deleteOldEntries(keptMs, entriesPerDelete)]);
    }
  };

  const count = async (): Promise<{ entries: number; isFull: boolean }> => {
    const [row] = await database.read(countEntries(), { cold: true });
    return { entries: Number(row!["entries"]), isFull: Number(row!["is_full"]) === 1 };
  };

  const keepWithinBound = async (): Promise<void> => {
    let { entries, isFull } = await count();
    if (entries > maxEntries) {
      const deletes = Math.ceil((entries - maxEntries) / entriesPerDelete);
      for (let at = 0; at < Math.min(deletes, deletesPerPass); at++) {
        const beyond = Math.min(entriesPerDelete, entries - maxEntries - at * entriesPerDelete);
        await database.write([deleteOldestOf(firstToGo, beyond)]);
      }
      ({ entries, isFull } = await count());
    }
    if (entries > maxEntries && !isFull) {
      const id = ids.next();
      await database.write([markFull(id, maxEntries)]);
      emitEntry({ id, actor: "leader", action: fullAction, outcome: "full" });
      log.error({ entries, maxEntries }, "the audit is full: acts are refused");
    } else if (entries < maxEntries && isFull) {
      await database.write([endFull()]);
      log.info({ entries, maxEntries }, "the audit has room again");
    } else if (entries > maxEntries * warnedShare) {
      log.warn({ entries, maxEntries }, "the audit is nearly full");
    }
  };

  const work = async (): Promise<void> => {
    if (clock.monotonic() - prunedMs >= pruneEveryMs) {
      prunedMs = clock.monotonic();
      await deleteOld();
    }
    if (clock.monotonic() - countedMs < countEveryMs) return;
    countedMs = clock.monotonic();
    await keepWithinBound();
  };

  return createLeaderPass(work, { clock, log, failed: "audit pass failed" });
}

/** Checks `audit` of the config, and fills in the defaults. */
export function auditOf(given: AuditConfig = {}): Required<AuditConfig> {
  checkOptions("audit", given, ["keptMs", "maxEntries"]);
  const { keptMs = 400 * dayMs, maxEntries = 10_000_000 } = given;
  return {
    keptMs: checkNumber("audit.keptMs", keptMs, { min: dayMs, max: 36_500 * dayMs }),
    maxEntries: checkNumber("audit.maxEntries", maxEntries, { min: 1_000, max: 1_000_000_000 }),
  };
}
