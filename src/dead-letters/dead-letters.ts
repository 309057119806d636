import { type Clock, sleep } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import type { Ids } from "../base/ids.ts";
import { checkNumber, checkOptions } from "../base/options.ts";
import { fitPage } from "../base/page.ts";
import type { Random } from "../base/random.ts";
import { resend, untilKnown } from "../store/retry.ts";
import { getTask } from "../tasks/sql/inspect.ts";
import type { Database, Row } from "../store/database.ts";
import { type Kept, openKept, readStep } from "./leader.ts";
import {
  checkSelection,
  hasEnded,
  type Redrive,
  type Selection,
  toStored,
  withStep,
} from "./redrive.ts";
import {
  cancelRedrive,
  discardTasks,
  getRedrive,
  insertRedrive,
  listRedrives,
  openMost,
} from "./sql.ts";
import type { DeadLetter } from "./dead-letter.ts";
import type { ErrorGroups } from "./index.ts";
import { type Views, viewsInMemory } from "./index-files.ts";

export type GroupsOptions = {
  name?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
  /** Told how many failed tasks were read so far, where they have to be read first. */
  onProgress?: (tasks: number) => void;
};

export type DeadLettersOptions = Pick<GroupsOptions, "limit" | "name" | "onProgress"> & {
  group?: string;
  /** The `next` of the page before. */
  cursor?: string;
};

export type DeadLetterPage = { readonly tasks: DeadLetter[]; readonly next: string | null };

export type RedrivesOptions = {
  /** 1 to 1,000. Default 20. */
  limit?: number;
  /** The `next` of the page before. */
  cursor?: string;
};

export type RedrivePage = { readonly redrives: Redrive[]; readonly next: string | null };

export type RedriveOptions = {
  /** How large its steps may become: 1 to 1,000. Default 256. */
  maxStep?: number;
};

export type FollowOptions = {
  signal?: AbortSignal;
  onProgress?: (redrive: Redrive) => void;
};

export type DiscardOptions = { onProgress?: (discarded: number) => void };

/** Failed tasks: what went wrong with how many, starting them over, giving them up. */
export type DeadLetters = {
  /** Failed tasks grouped by their errors, the largest group first. */
  groups(options?: GroupsOptions): Promise<ErrorGroups>;
  /** A page of failed tasks, the latest first. */
  list(options?: DeadLettersOptions): Promise<DeadLetterPage>;
  /** How many failed tasks a selection has. */
  count(selection: Selection, options?: Pick<GroupsOptions, "onProgress">): Promise<number>;
  /** Stores that failed tasks are to be started over, one first, then more and more at a time. */
  redrive(selection: Selection, options?: RedriveOptions): Promise<Redrive>;
  /** A page of redrives, newest first. */
  redrives(options?: RedrivesOptions): Promise<RedrivePage>;
  getRedrive(redriveId: string): Promise<Redrive | undefined>;
  /** Resolves once a redrive has ended. */
  followRedrive(redriveId: string, options?: FollowOptions): Promise<Redrive>;
  /** A redrive that runs takes no more tasks. Those that it has taken go on. */
  cancelRedrive(redriveId: string): Promise<Redrive>;
  /**
   * Gives failed tasks up: they are `cancelled`, with their errors. Where the store refuses after some were
   * given up, it rejects with `unknown_outcome`, and `details.discarded` says how many at least.
   */
  discard(selection: Selection, options?: DiscardOptions): Promise<{ discarded: number }>;
};

export type DeadLettersParts = {
  database: Database;
  clock: Clock;
  random: Random;
  ids: Ids;
  /** The view that this pod keeps if it leads. */
  kept?: () => Kept | undefined;
  /** Where a view of its own is kept. Default: in memory. */
  views?: Views;
};

const defaultStepMost = 256;
const discardTogether = 250;
const followMs = 250;

export function createDeadLetters(parts: DeadLettersParts): DeadLetters & { close(): void } {
  const { database, clock, random, ids } = parts;
  const { views = viewsInMemory } = parts;
  let own: Kept | undefined;
  let refreshing: Promise<unknown> = Promise.resolve();
  let closed = false;

  /** The leader's view as it is, or one that is made to be as the store is now. */
  const look = async (onProgress?: (tasks: number) => void, leaders = true): Promise<Kept> => {
    const kept = leaders ? parts.kept?.() : undefined;
    if (kept && (await caughtUp(kept))) return kept;
    if (closed) throw new FlotillaError("closed", "the connection was closed");
    // One after the other, because a walk keeps its place in the view that it walks for.
    const refreshed = refreshing.then(() => refresh(onProgress));
    refreshing = refreshed.catch(() => {});
    return refreshed;
  };

  const refresh = async (onProgress?: (tasks: number) => void): Promise<Kept> => {
    own ??= await openKept(database, views);
    try {
      await own.following.refresh(onProgress);
      return own;
    } catch (error) {
      if (!views.discard(own.view, error)) throw error;
      own = undefined;
      return refresh(onProgress);
    }
  };

  /** Whether the leader's view could be brought up to date. It is gone if another pod leads by then. */
  const caughtUp = async (kept: Kept): Promise<boolean> => {
    const isThere = () => parts.kept?.() === kept;
    try {
      await kept.following.look(1);
    } catch (error) {
      if (isThere()) throw error;
    }
    return isThere();
  };

  const send = (statements: Parameters<typeof resend>[1]) =>
    resend(database, statements, { clock, random, ...untilKnown });

  const shown = async (row: Row): Promise<Redrive> => {
    const stored = toStored(row);
    return withStep(stored, await readStep(database, stored));
  };

  const find = async (redriveId: string): Promise<Redrive | undefined> => {
    const [row] = await database.read(getRedrive(redriveId));
    return row && shown(row);
  };

  return {
    async groups(options = {}) {
      checkOptions("groups", options, ["name", "limit", "onProgress"]);
      const { name, limit = 50, onProgress } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const { view } = await look(onProgress);
      const found = view.groups({ limit, ...(name !== undefined && { name }) });
      // There is no next page: `count` says how many there are, and the largest come first.
      return { ...found, groups: fitPage([...found.groups], false).items };
    },

    async list(options = {}) {
      checkOptions("list", options, ["group", "name", "cursor", "limit", "onProgress"]);
      const { group, name, cursor, limit = 50, onProgress } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const before = cursor === undefined ? undefined : placeOf(cursor);
      const selection = {
        ...(group !== undefined && { group }),
        ...(name !== undefined && { name }),
      };
      const { view } = await look(onProgress);
      const found = view.page(selection, before, limit + 1);
      const page = fitPage(found.slice(0, limit), found.length > limit);
      const last = page.items.at(-1);
      const next = page.hasMore && last ? `${last.failedAtMs}.${last.taskId}` : null;
      return { tasks: page.items, next };
    },

    async count(selection, { onProgress } = {}) {
      const checked = checkSelection(selection);
      return (await look(onProgress)).view.count(checked);
    },

    async redrive(selection, options = {}) {
      const checked = checkSelection(selection);
      checkOptions("redrive", options, ["maxStep"]);
      const { maxStep = defaultStepMost } = options;
      checkNumber("maxStep", maxStep, { min: 1, max: 1_000 });
      if (checked.taskId !== undefined) await mustBeFailed(database, checked.taskId);
      const { tables } = await send(insertRedrive(ids.next(), checked, maxStep));
      const [row] = tables[1]!;
      if (row) return shown(row);
      throw new FlotillaError(
        "overloaded",
        `${openMost} redrives are running: wait for one to end, or cancel one`,
      );
    },

    async redrives(options = {}) {
      checkOptions("redrives", options, ["limit", "cursor"]);
      const { limit = 20, cursor } = options;
      checkNumber("limit", limit, { min: 1, max: 1_000 });
      const rows = await database.read(listRedrives(limit + 1, cursor));
      const found = await Promise.all(rows.slice(0, limit).map(shown));
      const page = fitPage(found, rows.length > limit);
      const next = page.hasMore ? page.items.at(-1)!.redriveId : null;
      return { redrives: page.items, next };
    },

    getRedrive: find,

    async followRedrive(redriveId, options = {}) {
      checkOptions("followRedrive", options, ["signal", "onProgress"]);
      const { signal, onProgress = () => {} } = options;
      for (;;) {
        const redrive = await find(redriveId);
        if (!redrive) throw noRedrive(redriveId);
        onProgress(redrive);
        if (hasEnded(redrive)) return redrive;
        await sleep(clock, followMs, signal);
      }
    },

    async cancelRedrive(redriveId) {
      const reason = { code: "cancelled", message: "it was cancelled" } as const;
      const { tables } = await send(cancelRedrive(redriveId, reason));
      const [row] = tables[1]!;
      if (!row) throw noRedrive(redriveId);
      const redrive = await shown(row);
      if (redrive.reason?.code === "cancelled") return redrive;
      throw new FlotillaError("conflict", `redrive ${redriveId} is ${redrive.state} already`);
    },

    async discard(selection, options = {}) {
      const checked = checkSelection(selection);
      checkOptions("discard", options, ["onProgress"]);
      if (checked.taskId !== undefined) await mustBeFailed(database, checked.taskId);
      // Not the leader's, which may be a little behind: what is given up now should be all there is.
      const { view } = await look(undefined, false);
      const [latest] = view.page(checked, undefined, 1);
      const picking = { untilMs: latest?.failedAtMs ?? 0 };
      let discarded = 0;
      for (;;) {
        const letters = view.pick(checked, picking, discardTogether);
        if (letters.length === 0) return { discarded };
        const { tables } = await send(discardTasks(letters, ids.next())).catch((error: unknown) => {
          throw discarded === 0 ? error : partlyDiscarded(discarded, error);
        });
        discarded += Number(tables[2]![0]!["discarded"]);
        // Those that weren't failed any more are as good as gone from here too.
        view.drop(letters.map((each) => each.taskId));
        options.onProgress?.(discarded);
      }
    },

    close() {
      closed = true;
      void refreshing.then(() => {
        own?.view.close();
        own = undefined;
      });
    },
  };
}

/** One task can be asked about at once, and whoever names it wants to know. */
async function mustBeFailed(database: Database, taskId: string): Promise<void> {
  const [row] = await database.read(getTask(taskId));
  if (!row) {
    throw new FlotillaError("not_found", `there is no task ${taskId}`, { details: { taskId } });
  }
  if (row["status"] === "failed") return;
  throw new FlotillaError(
    "conflict",
    `task ${taskId} is ${row["status"]}: only failed tasks can be started over or given up here`,
    { details: { taskId, status: row["status"] } },
  );
}

/** A refusal says that nothing was done, which isn't so where earlier transactions gave tasks up. */
function partlyDiscarded(discarded: number, cause: unknown): FlotillaError {
  return new FlotillaError(
    "unknown_outcome",
    `${discarded} failed tasks were given up, perhaps more, before the store said: ${messageOf(cause)}`,
    { cause, details: { discarded } },
  );
}

function noRedrive(redriveId: string): FlotillaError {
  return new FlotillaError("not_found", `there is no redrive ${redriveId}`);
}

function placeOf(cursor: string) {
  const [, atMs, taskId] = /^(\d{1,16})\.(.+)$/s.exec(cursor) ?? [];
  if (taskId !== undefined) return { atMs: Number(atMs), taskId };
  throw new FlotillaError("invalid_option", "cursor must be the `next` of an earlier page");
}
