import type { Clock } from "../base/clock.ts";
import { minuteMs } from "../base/durations.ts";
import { messageOf } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { createSharedRun } from "../base/semaphore.ts";
import type { Database } from "../store/database.ts";
import { hasOldChanges, noteHorizon, pruneBatch, readState, renewLife } from "./sql.ts";

export type ChangesLeaderOptions = {
  database: Database;
  clock: Clock;
  ids: Ids;
  log?: Logger;
  /** How many rows one transaction deletes. Default 1,000. */
  batchRows?: number;
};

const passEveryMs = minuteMs;
// The next pass goes on, so that a pass doesn't take for ever.
const batchesPerPass = 1_000;

/** The leader's work on recorded changes: deletes what is old, and notices a store that was restored. */
export function createChangesLeader(options: ChangesLeaderOptions) {
  const { database, clock, ids, log = silentLogger, batchRows = 1_000 } = options;
  let passedMs = -Infinity;

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

  const pass = async (): Promise<void> => {
    try {
      await passNow();
    } catch (error) {
      log.warn({ error: messageOf(error) }, "changes not pruned");
    }
  };
  const passes = createSharedRun(pass);

  return {
    pass,
    /** Called at every beat of a pod that leads. A new pass starts only after the last one has ended. */
    beat(): void {
      if (clock.monotonic() - passedMs < passEveryMs) return;
      passedMs = clock.monotonic();
      void passes.run();
    },
    stop: passes.ended,
  };
}
