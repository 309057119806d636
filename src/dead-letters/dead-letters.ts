import { type Act, type ActWrite, beginAct, continued, endAct, writeAct } from "../audit/act.ts";
import { type Clock, followUntil } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import type { Logger } from "../base/log.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Random } from "../base/random.ts";
import { untilKnown } from "../store/retry.ts";
import { getTask } from "../tasks/sql/inspect.ts";
import type { Database, Row } from "../store/database.ts";
import type { WalkSpan } from "../store/walk.ts";
import { type SyncedIndex, openSyncedIndex, readStep } from "./leader.ts";
import {
  checkSelection,
  hasEnded,
  type Redrive,
  type Selection,
  toStoredRedrive,
  withStep,
} from "./redrive.ts";
import {
  cancelRedrive,
  discardTasks,
  getRedrive,
  insertRedrive,
  listRedrives,
  maxOpenRedrives,
} from "./sql.ts";
import type { DeadLetter } from "./dead-letter.ts";
import { createErrorGroups, type ErrorGroupCalls, type GroupsOptions } from "./error-groups.ts";
import { type IndexFiles, indexesInMemory } from "./index-files.ts";

export type DeadLettersOptions = Omit<GroupsOptions, "state"> & {
  group?: string;
  /** The `next` of the previous page. */
  cursor?: string;
};

export type DeadLetterPage = { readonly tasks: DeadLetter[]; readonly next: string | null };

export type RedrivesOptions = {
  /** 1 to 1,000. Default 20. */
  limit?: number;
  /** The `next` of the previous page. */
  cursor?: string;
  /** Only redrives of this tenant's tasks alone. */
  tenant?: string;
};

export type RedrivePage = { readonly redrives: Redrive[]; readonly next: string | null };

export type RedriveOptions = {
  /** The largest size of its steps: 1 to 1,000. Default 256. */
  maxStep?: number;
  /** Forgets the stored steps of its tasks, so that all of them run again. Default false. */
  fromStart?: boolean;
};

export type FollowOptions = {
  signal?: AbortSignal;
  onProgress?: (redrive: Redrive) => void;
};

export type DiscardOptions = { onProgress?: (discarded: number) => void };

/** Failed tasks: groups by error, restarting them, discarding them. */
export type DeadLetters = ErrorGroupCalls & {
  /** A page of failed tasks, the latest first. */
  list(options?: DeadLettersOptions): Promise<DeadLetterPage>;
  /** How many failed tasks a selection has. */
  count(selection: Selection, options?: Pick<GroupsOptions, "onProgress">): Promise<number>;
  /** Starts a redrive, which restarts failed tasks: one first, then more and more at a time. */
  redrive(selection: Selection, options?: RedriveOptions): Promise<Redrive>;
  /** A page of redrives, newest first. */
  redrives(options?: RedrivesOptions): Promise<RedrivePage>;
  getRedrive(redriveId: string): Promise<Redrive | undefined>;
  /** Resolves once a redrive has ended. */
  followRedrive(redriveId: string, options?: FollowOptions): Promise<Redrive>;
  /** Stops a running redrive from taking more tasks. Tasks that it has taken continue. */
  cancelRedrive(redriveId: string): Promise<Redrive>;
  /**
   * Discards failed tasks: they become `cancelled`, with their errors kept. If the store refuses
   * after some were discarded, it rejects with `unknown_outcome`, and `details.discarded` is their
   * least number.
   */
  discard(selection: Selection, options?: DiscardOptions): Promise<{ discarded: number }>;
};

export type DeadLettersParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  /** Where acts are logged. Default: nowhere. */
  log?: Logger;
  /** The index that this pod keeps while it leads. */
  leaderIndex?: () => SyncedIndex | undefined;
  /** Where its own index is kept. Default: in memory. */
  views?: IndexFiles;
};

const defaultMaxStep = 256;
const tasksPerDiscard = 250;

/** The operations with what lists of tasks and the process need. */
export type LocalDeadLetters = DeadLetters & {
  /** A piece of the ids of a group's tasks, in the order of ids, newest first. */
  inGroup(group: string, span: WalkSpan): Promise<string[]>;
  close(): void;
};

/** Creates the operations on failed tasks. */
export function createDeadLetters(parts: DeadLettersParts): LocalDeadLetters {
  const { database, clock } = parts;
  const { views: indexFiles = indexesInMemory } = parts;
  let own: SyncedIndex | undefined;
  let refreshing: Promise<unknown> = Promise.resolve();
  let closed = false;

  /** The leader's index, or an own one that is brought in sync with the store. */
  const readIndex = async (
    onProgress?: (tasks: number) => void,
    leaders = true,
  ): Promise<SyncedIndex> => {
    const synced = leaders ? parts.leaderIndex?.() : undefined;
    if (synced && (await caughtUp(synced))) return synced;
    if (closed) throw new FlotillaError("closed", "the connection was closed");
    // One after the other, because a walk keeps its position in the index.
    const refreshed = refreshing.then(() => refresh(onProgress));
    refreshing = refreshed.catch(() => {});
    return refreshed;
  };

  const refresh = async (onProgress?: (tasks: number) => void): Promise<SyncedIndex> => {
    own ??= await openSyncedIndex(database, indexFiles);
    try {
      await own.sync.refresh(onProgress);
      return own;
    } catch (error) {
      if (!indexFiles.discard(own.index, error)) throw error;
      own = undefined;
      return refresh(onProgress);
    }
  };

  /** Whether the leader's index could be updated. It is gone if another pod leads by then. */
  const caughtUp = async (synced: SyncedIndex): Promise<boolean> => {
    const isThere = () => parts.leaderIndex?.() === synced;
    try {
      await synced.sync.read(1);
    } catch (error) {
      if (isThere()) throw error;
    }
    return isThere();
  };

  const write = (act: Act, statements: ActWrite["statements"]) =>
    writeAct(parts, act, { statements }, untilKnown);

  const toRedrive = async (row: Row): Promise<Redrive> => {
    const stored = toStoredRedrive(row);
    return withStep(stored, await readStep(database, stored));
  };

  const find = async (redriveId: string): Promise<Redrive | undefined> => {
    const [row] = await database.read(getRedrive(redriveId));
    return row && toRedrive(row);
  };

  return {
    ...createErrorGroups({ ...parts, readIndex, write }),

    async list(options = {}) {
      checkOptions("list", options, ["group", "name", "tenant", "cursor", "limit", "onProgress"]);
      const { group, cursor, limit = 50, onProgress } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const before = cursor === undefined ? undefined : cursorOf(cursor);
      const selection = { ...(group !== undefined && { group }), ...filterOf(options) };
      const { index } = await readIndex(onProgress);
      const found = index.page(selection, before, limit + 1);
      const page = fitPage(found.slice(0, limit), found.length > limit);
      const last = page.items.at(-1);
      const next = page.hasMore && last ? `${last.failedAtMs}.${last.taskId}` : null;
      return { tasks: page.items, next };
    },

    inGroup: async (group, span) => (await readIndex()).index.idsIn(group, span),

    async count(selection, { onProgress } = {}) {
      const checked = checkSelection(selection);
      return (await readIndex(onProgress)).index.count(checked);
    },

    async redrive(selection, options = {}) {
      const checked = checkSelection(selection);
      checkOptions("redrive", options, ["maxStep", "fromStart"]);
      const { maxStep = defaultMaxStep, fromStart = false } = options;
      checkNumber("maxStep", maxStep, { min: 1, max: 1_000 });
      const act = await beginAct(parts, { action: "redrives.start", filter: checked });
      if (!act.stored) await mustBeFailed(database, checked);
      const { tables } = await write(act, (id, entry) =>
        insertRedrive(id, checked, { maxStep, fromStart }, entry),
      );
      const [row] = tables.at(-1)!;
      if (row) return toRedrive(row);
      throw new FlotillaError(
        "overloaded",
        `${maxOpenRedrives} redrives are running: wait for one to end, or cancel one`,
      );
    },

    async redrives(options = {}) {
      checkOptions("redrives", options, ["limit", "cursor", "tenant"]);
      const { limit = 20, cursor, tenant } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const isListed = (row: Row) =>
        tenant === undefined || toStoredRedrive(row).selection.tenant === tenant;
      const rows: Row[] = [];
      // Redrives are few and pruned, so those of other tenants are read and passed over.
      for (let after = cursor, isLast = false; !isLast && rows.length <= limit;) {
        const read = await database.read(listRedrives(limit + 1, after));
        rows.push(...read.filter(isListed));
        isLast = read.length <= limit;
        after = read.at(-1)?.["redrive_id"] as string | undefined;
      }
      const found = await Promise.all(rows.slice(0, limit).map(toRedrive));
      const page = fitPage(found, rows.length > limit);
      const next = page.hasMore ? page.items.at(-1)!.redriveId : null;
      return { redrives: page.items, next };
    },

    getRedrive: find,

    async followRedrive(redriveId, options = {}) {
      checkOptions("followRedrive", options, ["signal", "onProgress"]);
      const read = async () => {
        const redrive = await find(redriveId);
        if (redrive) return redrive;
        throw noRedrive(redriveId);
      };
      return followUntil(clock, read, { ...options, hasEnded });
    },

    async cancelRedrive(redriveId) {
      const reason = { code: "cancelled", message: "it was cancelled" } as const;
      const act = await beginAct(parts, { action: "redrives.cancel", subject: redriveId });
      const { tables } = await write(act, (_, entry) => cancelRedrive(redriveId, reason, entry));
      const [row] = tables.at(-1)!;
      if (!row) throw noRedrive(redriveId);
      const redrive = await toRedrive(row);
      if (redrive.reason?.code === "cancelled") return redrive;
      throw new FlotillaError("conflict", `redrive ${redriveId} is ${redrive.state} already`);
    },

    async discard(selection, options = {}) {
      const checked = checkSelection(selection);
      checkOptions("discard", options, ["onProgress"]);
      const act = await beginAct(parts, { action: "tasks.discard", filter: checked });
      if (act.stored) return { discarded: act.stored.count };
      await mustBeFailed(database, checked);
      // Not the leader's index, which may lag behind: a discard should cover all failed tasks.
      const { index } = await readIndex(undefined, false);
      const [latest] = index.page(checked, undefined, 1);
      const picking = { untilMs: latest?.failedAtMs ?? 0 };
      let discarded = 0;
      for (;;) {
        const deadLetters = index.pick(checked, picking, tasksPerDiscard);
        if (deadLetters.length === 0) break;
        const { tables, stored } = await write(continued(act, discarded), (id, entry) =>
          discardTasks(deadLetters, id, entry),
        ).catch((error: unknown) => {
          throw discarded === 0 ? error : partlyDiscarded(discarded, error);
        });
        // Another call with the id of this act goes on with it, and counts what it discards.
        if (stored && stored.id !== act.id) return { discarded: stored.count };
        discarded += Number(tables.at(-1)![0]!["discarded"]);
        // Drops also those that were no longer failed.
        index.drop(deadLetters.map((each) => each.taskId));
        options.onProgress?.(discarded);
      }
      // The tasks are discarded, whatever becomes of the entry's end.
      if (discarded > 0) await endAct(parts, act).catch(() => {});
      return { discarded };
    },

    close() {
      closed = true;
      void refreshing.then(() => {
        own?.index.close();
        own = undefined;
      });
    },
  };
}

function filterOf({ name, tenant }: GroupsOptions): Pick<Selection, "name" | "tenant"> {
  return { ...(name !== undefined && { name }), ...(tenant !== undefined && { tenant }) };
}

/** A single task can be checked at once, and its caller expects an error. */
async function mustBeFailed(database: Database, { taskId, tenant }: Selection): Promise<void> {
  if (taskId === undefined) return;
  const [row] = await database.read(getTask(taskId));
  if (!row || (tenant !== undefined && row["tenant"] !== tenant)) {
    throw new FlotillaError("not_found", `there is no task ${taskId}`, { details: { taskId } });
  }
  if (row["status"] === "failed") return;
  throw new FlotillaError(
    "conflict",
    `task ${taskId} is ${row["status"]}: only failed tasks can be redriven or discarded`,
    { details: { taskId, status: row["status"] } },
  );
}

/**
 * An error of the store means that nothing was done, which is not true after earlier transactions
 * have discarded tasks.
 */
function partlyDiscarded(discarded: number, cause: unknown): FlotillaError {
  return new FlotillaError(
    "unknown_outcome",
    `${discarded} failed tasks, perhaps more, were discarded before the store failed: ${messageOf(cause)}`,
    { cause, details: { discarded } },
  );
}

function noRedrive(redriveId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no redrive ${redriveId}`);
}

function cursorOf(cursor: string) {
  const [, atMs, taskId] = /^(\d{1,16})\.(.+)$/s.exec(cursor) ?? [];
  if (taskId !== undefined) return { atMs: Number(atMs), taskId };
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}
