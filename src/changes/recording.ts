import { contentionMs } from "../base/backoff.ts";
import type { Clock } from "../base/clock.ts";
import { dayMs, minuteMs } from "../base/durations.ts";
import { contendedCodes, FlotillaError, hasCode } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import type { Random } from "../base/random.ts";
import { createLeaderPass, type LeaderPass } from "../base/semaphore.ts";
import type { Database } from "../store/database.ts";
import { callUntilAnswered, writeUntilKnown } from "../store/retry.ts";
import { recorderRevision } from "../store/changes-schema.ts";
import {
  beginRecording,
  endRecording,
  hasOldChanges,
  noteHorizon,
  pruneBatch,
  readState,
  renewLife,
  setKept,
} from "./sql.ts";

export type ChangesConfig = {
  /** How long changes are kept for readers. Default 7 days. */
  keepMs?: number;
};

export type RecordingOptions = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  /** `check` refuses where something would have to be made. */
  migrate: "auto" | "check";
  log?: Logger;
};

// As long as a migration waits for the same locks.
const limitMs = 60_000;

/** Checks `changes` of the config. Undefined leaves the store as it is. */
export function changesConfigOf(
  given: false | ChangesConfig | undefined,
): false | Required<ChangesConfig> | undefined {
  if (given === undefined || given === false) return given;
  checkOptions("changes", given, ["keepMs"]);
  const { keepMs = 7 * dayMs } = given;
  return { keepMs: checkNumber("changes.keepMs", keepMs, { min: minuteMs, max: 366 * dayMs }) };
}

/**
 * Has the store record changes, or stop. It is a fact of the store, in triggers: every program that writes
 * to it obeys, whatever its config says, so that no pod can leave a gap.
 */
export async function setRecording(
  wanted: false | Required<ChangesConfig>,
  options: RecordingOptions,
): Promise<void> {
  const { database, clock, random, ids, migrate, log } = options;
  if (wanted && !database.recordsChanges) {
    throw new FlotillaError(
      "unsupported",
      "this database can't record changes, which takes triggers for whole statements and the numbers of transactions: leave `changes` out of the config, or use Postgres or SQLite (docs/stores.md)",
    );
  }
  const retry = { clock, random, limitMs, waitMs: (tries: number) => contentionMs(tries, random) };
  const [state] = await callUntilAnswered(() => database.read(readState()), retry);
  const isOn = state !== undefined;
  if (wanted === false && !isOn) return;
  if (wanted && isOn && Number(state["revision"]) >= recorderRevision) {
    if (Number(state["keep_ms"]) !== wanted.keepMs)
      await writeUntilKnown(database, [setKept(wanted.keepMs)], retry);
    return;
  }
  if (migrate === "check") {
    throw new FlotillaError(
      "store_outdated",
      `the store ${wanted ? "doesn't record changes as the config says" : "records changes, and the config says `changes: false`"}: run \`flotilla migrate --config <file> --store <url>\` as the owner of the tables`,
    );
  }
  const statements = wanted ? beginRecording(ids.next(), wanted.keepMs) : endRecording();
  try {
    await writeUntilKnown(database, statements, { ...retry, codes: contendedCodes });
  } catch (error) {
    if (!hasCode(error, "store_busy")) throw error;
    throw new FlotillaError(
      "store_busy",
      "the tables couldn't be locked to record changes, because a transaction on them stays open: end it, and start again (docs/postgres.md, Migrations)",
      { cause: error },
    );
  }
  log?.info(wanted || {}, wanted ? "changes are recorded" : "changes aren't recorded");
}

export type ChangesLeaderOptions = {
  database: Database;
  clock: Clock;
  ids: Ids;
  log?: Logger;
  /** How many rows one transaction deletes. Default 1,000. */
  batchRows?: number;
};

// The next pass goes on, so that a pass doesn't take for ever.
const batchesPerPass = 1_000;

/** The leader's work on recorded changes: deletes what is old, and notices a store that was restored. */
export function createChangesLeader(options: ChangesLeaderOptions): LeaderPass {
  const { database, clock, ids, log = silentLogger, batchRows = 1_000 } = options;

  const passNow = async (): Promise<void> => {
    const [state] = await database.read(readState());
    if (state !== undefined && Number(state["horizon"]) < Number(state["high"])) {
      await database.write(renewLife(state["life"] as string, ids.next()));
      log.warn({}, "the store was restored: readers of changes begin again");
    }
    if (state !== undefined) await database.write([noteHorizon()], { lossy: true });
    for (let at = 0; at < batchesPerPass; at++) {
      if ((await database.read(hasOldChanges())).length === 0) return;
      await database.write(pruneBatch(batchRows), { lossy: true });
    }
  };

  return createLeaderPass(passNow, { clock, everyMs: minuteMs, log, failed: "changes not pruned" });
}
