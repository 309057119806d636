import type { Clock } from "../base/clock.ts";
import { hasCode, messageOf } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import { writeUntilKnown, untilKnown } from "../store/retry.ts";
import type { Database, Row } from "../store/database.ts";
import { fingerprintVersion, errorGroupOf, groupVersion } from "./fingerprint.ts";
import { decideGroups, toStoredGroup } from "./groups.ts";
import { createIndexSync, groupSecretOf } from "./index-sync.ts";
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
  getGroups,
  insertGroups,
  keepGroups,
  manyFailed,
  oldGroups,
  openRedrives,
  pruneGroups,
  pruneRedrives,
  returnGroups,
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
  /** Where the index is kept. Default: in memory. */
  views?: IndexFiles;
  /**
   * Called after tasks were restarted, so that a pod in this process claims without waiting for a
   * notification.
   */
  onTaken?: () => void;
};

/** An index and its synchronisation with the store. */
export type SyncedIndex = {
  readonly index: DeadLetterIndex;
  readonly sync: ReturnType<typeof createIndexSync>;
};

// Grouping failures is not urgent, and an idle leader should query little.
const syncEveryMs = 5_000;
// The most pages of failures that a pass reads; a hundred thousand failures take a dozen passes.
const syncPages = 10;
// A task in the index may have changed since it was read, so it is read once more before it is
// taken.
const pickRounds = 5;
const redrivesKeptMs = 30 * 24 * 60 * 60_000;
// Counted from the last failure and the last act: an error that comes back later is a new one.
const groupsKeptMs = 30 * 24 * 60 * 60_000;
// The most groups that a pass stores, or prunes.
const groupsPerPass = 200;
const pruneEveryMs = 10 * 60_000;
/** Groups have other ids since the release that began the redrive. */
const groupIsGone: RedriveReason = {
  code: "cancelled",
  message: "its group has another id in this release: list the groups, and redrive that one",
};

/** What there is to do. */
type Asked = { readonly hasRedrives: boolean };

const allAsked: Asked = { hasRedrives: true };

/**
 * The leader's work on failed tasks, once per beat: it keeps its index in sync, and advances
 * redrives.
 */
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

  const syncIndex = async ({ index, sync }: SyncedIndex): Promise<void> => {
    await sync.read(syncPages);
    if (index.tasks > 0 && sync.complete) await sync.walk();
    await storeGroups(index);
    if (clock.monotonic() - prunedMs < pruneEveryMs) return;
    prunedMs = clock.monotonic();
    await database.write([pruneRedrives(redrivesKeptMs)]);
    // A group with tasks keeps its row, which says that it was resolved or ignored.
    const old = await database.read(oldGroups(groupsKeptMs, groupsPerPass));
    const gone = old.map((row) => row["group_id"] as string).filter((group) => !index.times(group));
    if (gone.length > 0) await database.write([pruneGroups(gone, groupsKeptMs)]);
  };

  /** Stores groups that are new, and opens those that have failed again. */
  const storeGroups = async (index: DeadLetterIndex): Promise<void> => {
    const touched = index.takeTouched(groupsPerPass);
    if (touched.length === 0) return;
    try {
      const seen = touched.flatMap((group) => {
        const times = index.times(group);
        return times ? [{ group, ...times }] : [];
      });
      const rows = (await database.read(getGroups(touched))).map(toStoredGroup);
      const stored = new Map(rows.map((row) => [row.group, row]));
      const { fresh, returned, kept } = decideGroups(seen, stored, index.firstAfter);
      const statements = [
        ...(fresh.length > 0 ? [insertGroups(fresh)] : []),
        ...(returned.length > 0 ? [returnGroups(returned)] : []),
        ...(kept.length > 0 ? [keepGroups(kept)] : []),
      ];
      if (statements.length > 0) await send(statements);
    } catch (error) {
      index.touch(touched);
      throw error;
    }
  };

  const send = (statements: Parameters<typeof writeUntilKnown>[1], notify = false) =>
    writeUntilKnown(database, statements, { clock, random, ...untilKnown, notify });

  /** Picks tasks that had failed a moment ago, and counts the rest. */
  const pick = async (
    { index, sync }: SyncedIndex,
    { selection }: StoredRedrive,
    picking: Picking,
    size: number,
  ): Promise<{ deadLetters: DeadLetter[]; remaining: number }> => {
    let deadLetters: DeadLetter[] = [];
    for (let round = 0; round < pickRounds; round++) {
      const picked = index.pick(selection, picking, size);
      const same = picked.every((each, at) => each.taskId === deadLetters[at]?.taskId);
      deadLetters = picked;
      if (same && round > 0) break;
      await sync.learn(picked.map((each) => each.taskId));
    }
    return { deadLetters, remaining: index.count(selection, picking) - deadLetters.length };
  };

  const advance = async (
    redrive: StoredRedrive,
    open: readonly StoredRedrive[],
    synced: SyncedIndex,
  ): Promise<void> => {
    const { group } = redrive.selection;
    const version = group === undefined ? fingerprintVersion : groupVersion(group);
    // A later release has made that group by its own rules, and will continue the redrive.
    if (version === undefined || version > fingerprintVersion) return;
    const step = await readStep(database, redrive);
    const decided = decideRedrive(redrive, step);
    const isOver = version < fingerprintVersion && decided.type === "take";
    const decision = isOver ? ({ type: "stop", reason: groupIsGone } as const) : decided;
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
        const { deadLetters, remaining } = await pick(synced, redrive, picking, decision.size);
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

  /**
   * Another transaction may hold a task that one redrive takes: the other redrives do not wait for
   * it.
   */
  const advanceUnlessBusy: typeof advance = async (redrive, open, synced) => {
    try {
      await advance(redrive, open, synced);
    } catch (error) {
      if (!hasCode(error, "store_busy")) throw error;
      const fields = { redrive: redrive.redriveId, error: messageOf(error) };
      log.warn(fields, "redrive blocked by a lock, retrying with the next pass");
    }
  };

  const logStop = ({ redriveId }: StoredRedrive, { code, message }: RedriveReason) =>
    log.warn({ redrive: redriveId, reason: code, error: message }, "redrive stopped");

  /** Does a bounded part of the work. The next pass does the rest. */
  const pass = async ({ hasRedrives } = allAsked): Promise<void> => {
    try {
      const open = hasRedrives ? (await database.read(openRedrives())).map(toStoredRedrive) : [];
      const due = clock.monotonic() - syncedMs >= syncEveryMs;
      if (open.length === 0 && !due && kept?.sync.complete) return;
      const synced = await openOnce();
      syncedMs = clock.monotonic();
      await syncIndex(synced);
      for (const redrive of open) await advanceUnlessBusy(redrive, open, synced);
    } catch (error) {
      // The next pass opens a new index.
      if (kept && indexFiles.discard(kept.index, error)) kept = undefined;
      log.warn({ error: messageOf(error) }, "dead-letter pass failed");
    }
  };

  /** Drops the index, because this pod does not lead. */
  const forget = (): void => {
    kept?.index.close();
    kept = undefined;
    syncedMs = -Infinity;
  };

  let passing: Promise<void> | undefined;

  return {
    pass,
    rest: forget,

    /** Called at every beat. A new pass starts only after the last one has ended. */
    beat(leads: boolean, asked = allAsked): void {
      if (passing) return;
      if (!leads) return forget();
      passing = pass(asked).finally(() => {
        passing = undefined;
      });
    },

    async stop(): Promise<void> {
      await passing;
      forget();
    },

    /** The index, once it is complete. */
    get kept(): SyncedIndex | undefined {
      return kept?.sync.complete ? kept : undefined;
    },
  };
}

/**
 * Opens an index, in a file if there are many failed tasks, and its synchronisation with the store.
 */
export async function openSyncedIndex(
  database: Database,
  indexFiles: IndexFiles,
): Promise<SyncedIndex> {
  const isMany = (await database.read(manyFailed())).length > 0;
  const index = await indexFiles.open(isMany ? "many" : "few");
  return { index, sync: createIndexSync(database, index) };
}

/** Counts the tasks of a redrive's current step by outcome. */
export async function readStep(database: Database, redrive: StoredRedrive): Promise<StepCounts> {
  if (redrive.stepTaken === 0) return countStep(0, []);
  const secret = await groupSecretOf(database);
  const rows = await database.read(stepTasks(redrive));
  return countStep(
    redrive.stepTaken,
    rows.map((row) => toStepTask(row, secret)),
  );
}

function toStepTask(row: Row, secret: string): StepTask {
  const { task_id: taskId, status, name } = row;
  if (status !== "failed") return { taskId, status };
  const error = storedErrorOf(row["error"]);
  const { group } = JSON.parse(row["redriven"] ?? "{}") as { group?: string };
  return {
    taskId,
    status,
    now: errorGroupOf({ name, ...error }, secret),
    message: error.message,
    ...(group !== undefined && { before: group }),
  };
}
