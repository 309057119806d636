import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { idBoundAt, idTime } from "../../base/ids.ts";
import { checkNumber } from "../../base/options.ts";
import { fitPage } from "../../base/page.ts";
import { linkedIds, linkedIdsAfter, type LinkedIds } from "../../links/links.ts";
import { type Database, pageReads, type Row } from "../../store/database.ts";
import { jsonPaths } from "../../store/json-values.ts";
import type { Statement } from "../../store/sql.ts";
import {
  afterAllIds,
  cursorsOf,
  walk,
  type Walk,
  walkBounds,
  type WalkEntry,
  type WalkPiece,
  type WalkSpan,
} from "../../store/walk.ts";
import {
  checkTasks,
  isFailed,
  isRunNamed,
  maxTenants,
  pendingTasks,
  readListed,
  runningTasks,
  taskConditions,
  tasksOfIds,
  tasksOfKey,
  tasksSetAside,
  walkTasks,
} from "../sql/list.ts";
import { waitsForTasks } from "../sql/task-state.ts";
import { checkTaskFilter, type ListSpan, maxFilterIds, type TaskFilter } from "./filter.ts";

/** What lists of tasks and of runs have in common. */
export type ListPageOptions = {
  /** The `next` of the page before, with the same filter. */
  cursor?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
  /** Drops the page, because its caller has hung up. */
  signal?: AbortSignal;
};

/** Where a list has got to. */
export type ListProgress = {
  /**
   * The cursor of the page that follows. A page may be empty and have one: then it was searched as far
   * as one page may be, and the next one goes on.
   */
  readonly next: string | null;
  /** Up to which time of creation the list was searched so far; null if it was to its end. */
  readonly lookedBackTo: number | null;
};

export const listPageNames = ["cursor", "limit", "signal"] as const;

/** A piece of ids, newest first: all that were looked at, and those of them that may be listed. */
export type IdPiece = {
  readonly walked: readonly string[];
  readonly ids: readonly string[];
  /** Whether no ids follow. Default: if fewer were looked at than asked for. */
  readonly isEnd?: boolean;
};

export type IdSource = (span: WalkSpan) => Promise<IdPiece>;

/** The ids of all tasks that may be listed, if they are few: `read` gives at most `max`. */
export type FewIds = { readonly read: (max: number) => Statement; readonly max: number };

/** How the rows of a list are found. */
export type ListPlan = {
  /** The name of the list and the filter, which cursors are for. */
  readonly list: string;
  readonly filter: Readonly<Record<string, unknown>>;
  readonly span: IdRange;
  /** The conditions of a row that is listed. */
  readonly fits: readonly Statement[];
  /** The condition of an index that has the rows in the order of their ids. Default: all tasks. */
  readonly among?: Statement | undefined;
  readonly ids?: IdSource | undefined;
  /** Reads pieces of the list itself. */
  readonly pieces?: Walk["read"] | undefined;
  readonly few?: FewIds | undefined;
};

/** The ids that a list is of, by their time or as they are. */
export type IdRange = ListSpan & { from?: string; to?: string };

export type Listed<Item> = ListProgress & { readonly items: Item[] };

type ListParts = { readonly database: Database; readonly clock: Clock };

// Half of what a page may read, so that as much is left for a walk where there are more.
export const maxFew = 10_000;
const pageRange = { min: 1, max: 1_000 };

/** Reads a page of a list, newest first. `toItems` makes what callers see of its rows. */
export async function readList<Item>(
  parts: ListParts,
  plan: ListPlan,
  { cursor, limit = 50, signal }: ListPageOptions,
  toItems: (rows: readonly Row[], database: Database) => Promise<Item[]>,
): Promise<Listed<Item>> {
  checkNumber("limit", limit, pageRange);
  const { from, end } = boundsOf(plan.span);
  const cursors = cursorsOf(plan.list, plan.filter);
  const before = cursor === undefined ? end : cursors.decode(cursor);
  const database = pageReads(parts.database, signal);
  let entries: number = walkBounds.entries;
  let { ids } = plan;
  if (ids === undefined && plan.few) {
    const found = await database.read(plan.few.read(plan.few.max + 1));
    entries -= found.length;
    if (found.length <= plan.few.max) ids = idsIn(found);
  }
  const { found, stoppedAt } = await walk({
    clock: parts.clock,
    before,
    from,
    limit,
    entries,
    async read(span, wanted) {
      const { fits, among, pieces } = plan;
      if (pieces) return pieces(span, wanted);
      if (ids === undefined)
        return toPiece(span, await database.read(walkTasks({ ...span, fits, among, wanted })));
      const piece = await ids(span);
      const rows =
        piece.ids.length === 0 ? [] : await database.read(checkTasks(piece.ids, { fits, wanted }));
      return pieceOf(span, piece, rows);
    },
  });
  const taskIds = found.map(({ id }) => id);
  const rows = taskIds.length === 0 ? [] : await database.read(readListed(taskIds, plan.fits));
  const page = fitPage(await toItems(rows, database), false);
  // What is larger than its columns, as text, may not fit after all.
  const last = page.hasMore ? rows[page.items.length - 1] : undefined;
  const at = last ? { id: last["task_id"] as string, atMs: Number(last["created_at"]) } : stoppedAt;
  return {
    items: page.items,
    next: at === undefined ? null : cursors.encode(at.id),
    lookedBackTo: at?.atMs ?? null,
  };
}

/** The ids of the newest tasks and runs, of a tenant or of all, as far back as a page may look. */
export async function newestIds(
  { database, clock }: ListParts,
  { tenant, limit }: { tenant?: string; limit: number },
): Promise<string[]> {
  const fits = taskConditions({ tenant });
  const { found } = await walk({
    clock,
    before: afterAllIds,
    from: "",
    limit,
    read: async (span, wanted) =>
      toPiece(span, await database.read(walkTasks({ ...span, fits, wanted }))),
  });
  return found.map(({ id }) => id);
}

/** Where a range of ids begins, and the first id behind it. */
function boundsOf({ sinceMs, untilMs, from = "", to }: IdRange): { from: string; end: string } {
  const begins = sinceMs === undefined ? "" : idBoundAt(sinceMs);
  const ends = untilMs === undefined ? afterAllIds : idBoundAt(untilMs + 1);
  // No id that can be stored is between the two.
  const behind = to === undefined ? afterAllIds : `${to}\u0001`;
  return { from: from > begins ? from : begins, end: behind < ends ? behind : ends };
}

/** Checks a filter of tasks, and chooses how they are listed. */
export function planTasks(
  { database, inGroup }: { database: Database; inGroup?: InGroup | undefined },
  given: TaskFilter,
): ListPlan {
  const filter = checkTaskFilter(given, { encodesContent: database.encodesContent });
  const { payload, group } = filter;
  return {
    list: "tasks",
    filter: { ...filter, payload: payload && Object.entries(payload) },
    span: filter,
    ...planFilter(filter),
    ids: group === undefined ? linkedSource(database, filter) : groupSource(group, inGroup),
  };
}

/** How the tasks of a filter are found, by lists and by bulks. */
export type FilterPlan = Pick<ListPlan, "fits" | "among" | "few">;

/** Chooses how the tasks of a filter that was checked are found. */
export function planFilter(filter: TaskFilter): FilterPlan {
  const { payload, sinceMs: _, untilMs: __, group, ...conditions } = filter;
  const { name, status, state, tenant, key, pod, scope, at, version, setAside, ids } = conditions;
  const fits = taskConditions({
    ...conditions,
    ...(group !== undefined && { status: "failed" }),
    payload: jsonPaths(payload ?? {}),
  });
  const few = (): FewIds | undefined => {
    if (ids !== undefined) return { read: () => tasksOfIds(ids), max: maxFilterIds };
    if (key !== undefined && name !== undefined) {
      return { read: () => tasksOfKey({ name, key, tenant }), max: maxTenants };
    }
    if (setAside) return { read: (max) => tasksSetAside({ name }, max), max: maxFew };
    if (pod !== undefined || status === "claimed")
      return { read: (max) => runningTasks({ pod, scope }, max), max: maxFew };
    if (status === "pending" || state !== undefined)
      return { read: (max) => pendingTasks({ name, state }, max), max: maxFew };
    return undefined;
  };
  const among = () => {
    if (group !== undefined || status === "failed") return isFailed;
    if (state === "waiting") return waitsForTasks;
    const isOfRuns = at !== undefined || version !== undefined;
    return isOfRuns && name !== undefined ? isRunNamed(name) : undefined;
  };
  return { fits, among: among(), few: few() };
}

/** Reads the ids of failed tasks of a group of errors, newest first. */
export type InGroup = (group: string, span: WalkSpan) => Promise<string[]>;

function groupSource(group: string, inGroup: InGroup | undefined): IdSource {
  return async (span) => {
    if (!inGroup) throw new FlotillaError("unsupported", "tasks can't be listed by `group` here");
    const ids = await inGroup(group, span);
    return { walked: ids, ids };
  };
}

/** The ids of what a session, or a run or task, has started; undefined if neither is given. */
export function linkedSource(
  database: Database,
  { session, run }: { session?: string | undefined; run?: string | undefined },
): IdSource | undefined {
  if (session !== undefined) return (span) => linkedIds(database, session, "session", span);
  if (run !== undefined) return (span) => linkedIds(database, run, "task", span);
  return undefined;
}

/** The same in the order in which bulks go: oldest first, behind an id. */
export function linkedAfter(
  database: Database,
  { session, run }: Pick<TaskFilter, "session" | "run">,
): ((after: string, count: number) => Promise<LinkedIds>) | undefined {
  if (session !== undefined)
    return (after, count) => linkedIdsAfter(database, session, "session", { after, count });
  if (run !== undefined)
    return (after, count) => linkedIdsAfter(database, run, "task", { after, count });
  return undefined;
}

/** All ids of a set, in the order of a walk. */
function idsIn(found: readonly Row[]): IdSource {
  const all = found.flatMap((row) => (row["task_id"] as string | null) ?? []);
  all.sort((one, other) => (one < other ? 1 : -1));
  return async ({ before, from, count }) => {
    const first = all.findIndex((id) => id < before);
    const ids = first < 0 ? [] : all.slice(first, first + count).filter((id) => id >= from);
    return { walked: ids, ids };
  };
}

function toPiece({ count }: WalkSpan, rows: readonly Row[]): WalkPiece {
  const last = rows.find((row) => row["walked"] !== null);
  const walked = Number(last?.["walked"] ?? 0);
  return {
    found: foundIn(rows),
    walked,
    last: last && { id: last["task_id"], atMs: Number(last["created_at"]) },
    isEnd: walked < count,
  };
}

function pieceOf({ count }: WalkSpan, piece: IdPiece, rows: readonly Row[]): WalkPiece {
  const { walked, isEnd = walked.length < count } = piece;
  const id = walked.at(-1);
  const row = rows.find((each) => each["walked"] !== null && each["task_id"] === id);
  // The task may have been deleted since its id was read.
  const atMs = id === undefined ? 0 : Number(row?.["created_at"] ?? idTime(id) ?? 0);
  return {
    found: foundIn(rows),
    walked: walked.length,
    last: id === undefined ? undefined : { id, atMs },
    isEnd,
  };
}

/** The entries that were found among the rows of a walk. */
export function foundIn(rows: readonly Row[]): WalkEntry[] {
  const found = rows.flatMap((row) =>
    row["walked"] === null
      ? [
          {
            id: row["task_id"] as string,
            atMs: Number(row["created_at"]),
            bytes: Number(row["bytes"]),
          },
        ]
      : [],
  );
  return found.toSorted((one, other) => (one.id < other.id ? 1 : -1));
}
