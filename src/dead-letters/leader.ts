import type { Clock } from "../base/clock.ts";
import { hasCode, messageOf } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import { writeUntilKnown, untilKnown } from "../store/retry.ts";
import type { Database, Row } from "../store/database.ts";
import { fingerprintVersion, errorGroupOf, groupVersion } from "./fingerprint.ts";
import { createIndexSync } from "./index-sync.ts";
import {
  countStep,
  decideRedrive,
  type Picking,
  type RedriveReason,
  type StepCounts,
  type StepTask,
  type StoredRedrive,
  toStoredRedrive,
} from "./redrive.ts";
import {
  endRedrive,
  manyFailed,
  openRedrives,
  pruneRedrives,
  stepTasks,
  stopRedrive,
  takeStep,
} from "./sql.ts";
import { type DeadLetter, storedErrorOf } from "./dead-letter.ts";
import type { DeadLetterIndex } from "./index.ts";
import { type IndexFiles, indexesInMemory } from "./index-files.ts";

export type DeadLetterLeaderOptions = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  log?: Logger;
  /** Where the view is kept. Default: in memory. */
  views?: IndexFiles;
  /** Told after tasks were started over, so that a pod in this process needn't wait for a hint. */
  onTaken?: () => void;
};

/** What is kept of a leader's view. */
export type SyncedIndex = {
  readonly index: DeadLetterIndex;
  readonly sync: ReturnType<typeof createIndexSync>;
};

// Nobody is in a hurry to see a failure grouped, and an idle leader should ask for little.
const syncEveryMs = 5_000;
// A pass learns of so many failures at most; with a hundred thousand there are a dozen passes to do.
const syncPages = 10;
// What the view has may have changed since it was looked at, so it is looked at once more when taken.
const pickRounds = 5;
const redrivesKeptMs = 30 * 24 * 60 * 60_000;
const pruneEveryMs = 10 * 60_000;

/** What a leader does about failed tasks, once per beat: it keeps its view of them, and goes on with redrives. */
export function createDeadLetterLeader(options: DeadLetterLeaderOptions) {
  const { database, clock, random, ids, log = silentLogger, onTaken = () => {} } = options;
  const { views: indexFiles = indexesInMemory } = options;
  let kept: SyncedIndex | undefined;
  let syncedMs = -Infinity;
  let prunedMs = clock.monotonic();

  const openOnce = async (): Promise<SyncedIndex> => {
    if (kept && indexFiles.outgrown(kept.index)) forget();
    return (kept ??= await openSyncedIndex(database, indexFiles));
  };

  const syncIndex = async ({ index, sync: following }: SyncedIndex): Promise<void> => {
    await following.look(syncPages);
    if (index.tasks > 0 && following.complete) await following.walk();
    if (clock.monotonic() - prunedMs < pruneEveryMs) return;
    prunedMs = clock.monotonic();
    await database.write([pruneRedrives(redrivesKeptMs)]);
  };

  const send = (statements: Parameters<typeof writeUntilKnown>[1], hint = false) =>
    writeUntilKnown(database, statements, { clock, random, ...untilKnown, hint });

  /** Failed tasks that were so a moment ago, and how many are left beside them. */
  const pick = async (
    { index, sync: following }: SyncedIndex,
    { selection }: StoredRedrive,
    picking: Picking,
    size: number,
  ): Promise<{ letters: DeadLetter[]; remaining: number }> => {
    let letters: DeadLetter[] = [];
    for (let round = 0; round < pickRounds; round++) {
      const picked = index.pick(selection, picking, size);
      const same = picked.every((each, at) => each.taskId === letters[at]?.taskId);
      letters = picked;
      if (same && round > 0) break;
      await following.learn(picked.map((each) => each.taskId));
    }
    return { letters, remaining: index.count(selection, picking) - letters.length };
  };

  const advance = async (
    redrive: StoredRedrive,
    open: readonly StoredRedrive[],
    synced: SyncedIndex,
  ): Promise<void> => {
    const { group } = redrive.selection;
    // Another release has made that group by rules of its own, and will go on with it.
    if (group !== undefined && groupVersion(group) !== fingerprintVersion) return;
    const step = await readStep(database, redrive);
    const decision = decideRedrive(redrive, step);
    const write = { redrive, step, writeId: ids.next() };
    switch (decision.type) {
      case "wait":
        return;
      case "stop":
        await send([stopRedrive(write, decision.reason)]);
        return logStop(redrive, decision.reason);
      case "end":
        await send([endRedrive(write, decision.state)]);
        return;
      case "take": {
        const picking = {
          untilMs: redrive.createdAtMs,
          notOf: open.map((each) => each.redriveId),
        };
        const { letters: deadLetters, remaining } = await pick(
          synced,
          redrive,
          picking,
          decision.size,
        );
        if (deadLetters.length === 0) {
          if (synced.sync.complete) await send([endRedrive(write, "done")]);
          return;
        }
        await send(takeStep(write, deadLetters, { size: decision.size, remaining }), true);
        onTaken();
        await synced.sync.learn(deadLetters.map((each) => each.taskId));
      }
    }
  };

  /** Somebody may hold a task that one of them takes: the others needn't wait for that. */
  const advanceUnlessBusy: typeof advance = async (redrive, open, here) => {
    try {
      await advance(redrive, open, here);
    } catch (error) {
      if (!hasCode(error, "store_busy")) throw error;
      const fields = { redrive: redrive.redriveId, error: messageOf(error) };
      log.warn(fields, "a redrive goes on with the next pass");
    }
  };

  const logStop = ({ redriveId }: StoredRedrive, { code, message }: RedriveReason) =>
    log.warn({ redrive: redriveId, reason: code }, `a redrive stops: ${message}`);

  /** Does a bounded piece of the work. Nothing that it leaves undone is lost. */
  const pass = async (): Promise<void> => {
    try {
      const open = (await database.read(openRedrives())).map(toStoredRedrive);
      const due = clock.monotonic() - syncedMs >= syncEveryMs;
      if (open.length === 0 && !due && kept?.sync.complete) return;
      const here = await openOnce();
      syncedMs = clock.monotonic();
      await syncIndex(here);
      for (const redrive of open) await advanceUnlessBusy(redrive, open, here);
    } catch (error) {
      // The next pass begins another.
      if (kept && indexFiles.discard(kept.index, error)) kept = undefined;
      log.warn({ error: messageOf(error) }, "a pass over failed tasks didn't come to its end");
    }
  };

  /** Forgets the view: another pod leads, or nobody. */
  const forget = (): void => {
    kept?.index.close();
    kept = undefined;
    syncedMs = -Infinity;
  };

  let passing: Promise<void> | undefined;

  return {
    pass,
    rest: forget,

    /** Called at every beat. A pass that takes longer than a beat isn't joined by another. */
    beat(leads: boolean): void {
      if (passing) return;
      if (!leads) return forget();
      passing = pass().finally(() => {
        passing = undefined;
      });
    },

    async stop(): Promise<void> {
      await passing;
      forget();
    },

    /** The view, once everything is in it. */
    get kept(): SyncedIndex | undefined {
      return kept?.sync.complete ? kept : undefined;
    },
  };
}

/** Opens a view, in a file where there is more to keep than is read in a moment, and follows the store with it. */
export async function openSyncedIndex(
  database: Database,
  indexFiles: IndexFiles,
): Promise<SyncedIndex> {
  const isMany = (await database.read(manyFailed())).length > 0;
  const index = await indexFiles.open(isMany ? "many" : "few");
  return { index, sync: createIndexSync(database, index) };
}

/** What has become of the tasks of a redrive's present step. */
export async function readStep(database: Database, redrive: StoredRedrive): Promise<StepCounts> {
  if (redrive.stepTaken === 0) return countStep(0, []);
  return countStep(redrive.stepTaken, (await database.read(stepTasks(redrive))).map(toStepTask));
}

function toStepTask(row: Row): StepTask {
  const { task_id: taskId, status, name } = row;
  if (status !== "failed") return { taskId, status };
  const error = storedErrorOf(row["error"]);
  const { group } = JSON.parse(row["redriven"] ?? "{}") as { group?: string };
  return {
    taskId,
    status,
    now: errorGroupOf({ name, ...error }),
    message: error.message,
    ...(group !== undefined && { before: group }),
  };
}
