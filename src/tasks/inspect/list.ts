import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { idBoundAt, idTime } from "../../base/ids.ts";
import { checkNumber, checkText } from "../../base/options.ts";
import { fitPage } from "../../base/page.ts";
import { linkedIds } from "../../links/links.ts";
import { type Database, pageReads, type Row } from "../../store/database.ts";
import type { JsonScalar, Statement } from "../../store/sql.ts";
import {
  afterAllIds,
  cursorsOf,
  walk,
  walkBounds,
  type WalkEntry,
  type WalkPiece,
  type WalkSpan,
} from "../../store/walk.ts";
import type { TaskStatus } from "../rows.ts";
import {
  checkTasks,
  isFailed,
  maxTenants,
  pendingTasks,
  readListed,
  runningTasks,
  taskConditions,
  tasksOfKey,
  walkTasks,
} from "../sql/list.ts";

/** What lists of tasks and of runs have in common. */
export type ListPageOptions = {
  /** The `next` of the page before, with the same filter. */
  cursor?: string;
  /** 1 to 1,000. Default 50. */
  limit?: number;
  /** Drops the page, because its caller has hung up. */
  signal?: AbortSignal;
};

/** When tasks and runs were created, by the clock of their producers: their ids begin with it. */
export type ListSpan = {
  /** Only those from this time on, in milliseconds since 1970. */
  sinceMs?: number;
  /** Only those up to this time. */
  untilMs?: number;
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

/** A value of a payload. */
export type PayloadValue = JsonScalar;

export type TaskFilter = ListSpan & {
  name?: string;
  status?: TaskStatus;
  tenant?: string;
  /** The unique key. Found at once with a name. */
  key?: string;
  /** The scope of a concurrency limit by key, as in `limits`. */
  scope?: string;
  /** Only tasks that run on this pod. */
  pod?: string;
  /** Only failed tasks of this group of errors. */
  group?: string;
  /** Only tasks that turns of this session have started. */
  session?: string;
  /** Only tasks that this run or task has started. */
  run?: string;
  /**
   * Values of the payload, by paths such as `order.id`. Needs a name and `sinceMs`, and a store without
   * a codec.
   */
  payload?: Readonly<Record<string, PayloadValue>>;
};

export const taskFilterNames = [
  "name",
  "status",
  "tenant",
  "key",
  "scope",
  "pod",
  "group",
  "session",
  "run",
  "sinceMs",
  "untilMs",
  "payload",
] as const;

export const listPageNames = ["cursor", "limit", "signal"] as const;

/** A piece of ids, newest first: all that were looked at, and those of them that may be listed. */
export type IdPiece = {
  readonly walked: readonly string[];
  readonly ids: readonly string[];
  /** How many entries were read for it. Default: those that were looked at. */
  readonly entries?: number;
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
  readonly span: ListSpan;
  /** The conditions of a row that is listed. */
  readonly fits: readonly Statement[];
  /** The condition of an index that has the rows in the order of their ids. Default: all tasks. */
  readonly among?: Statement | undefined;
  readonly ids?: IdSource | undefined;
  readonly few?: FewIds | undefined;
};

export type Listed<Item> = ListProgress & { readonly items: Item[] };

type ListParts = { readonly database: Database; readonly clock: Clock };

// Half of what a page may read, so that as much is left for a walk where there are more.
export const maxFew = 10_000;
const maxIdChars = 500;
const maxNameChars = 200;
const maxPaths = 5;
const maxPathNames = 5;
const maxValueChars = 1_000;
const nameInPath = /^[A-Za-z_][A-Za-z0-9_-]{0,99}$/;
const pageRange = { min: 1, max: 1_000 };
// What the time of an id can hold.
const timeRange = { min: 0, max: 2 ** 48 - 2 };

/** Reads a page of a list, newest first. `toItems` makes what callers see of its rows. */
export async function readList<Item>(
  parts: ListParts,
  plan: ListPlan,
  { cursor, limit = 50, signal }: ListPageOptions,
  toItems: (rows: readonly Row[], database: Database) => Promise<Item[]>,
): Promise<Listed<Item>> {
  checkNumber("limit", limit, pageRange);
  const { sinceMs, untilMs } = plan.span;
  const cursors = cursorsOf(plan.list, plan.filter);
  const end = untilMs === undefined ? afterAllIds : idBoundAt(untilMs + 1);
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
    from: sinceMs === undefined ? "" : idBoundAt(sinceMs),
    limit,
    entries,
    async read(span, wanted) {
      const { fits, among } = plan;
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

/** Checks a filter of tasks, and chooses how they are found. */
export function planTasks(
  { database, inGroup }: { database: Database; inGroup?: InGroup | undefined },
  filter: TaskFilter,
): ListPlan {
  checkFilter(database, filter);
  const { payload, sinceMs, untilMs, group, session, run, ...conditions } = filter;
  const { name, status, tenant, key, pod, scope } = conditions;
  const paths = Object.entries(payload ?? {}).map(([path, value]) => ({
    path: path.split("."),
    value,
  }));
  const fits = taskConditions({
    ...conditions,
    ...(group !== undefined && { status: "failed" }),
    payload: paths,
  });
  const isRunning = pod !== undefined || status === "claimed";
  const few = (): FewIds | undefined => {
    if (key !== undefined && name !== undefined) {
      return { read: () => tasksOfKey({ name, key, tenant }), max: maxTenants };
    }
    if (isRunning) return { read: (max) => runningTasks({ pod, scope }, max), max: maxFew };
    if (status === "pending") return { read: (max) => pendingTasks({ name }, max), max: maxFew };
    return undefined;
  };
  return {
    list: "tasks",
    filter: { ...filter, payload: payload && inOrder(payload) },
    span: spanOf({ sinceMs, untilMs }),
    fits,
    among: group !== undefined || status === "failed" ? isFailed : undefined,
    ids:
      group === undefined ? linkedSource(database, { session, run }) : groupSource(group, inGroup),
    few: few(),
  };
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

/** Throws if a filter names what can't be, or what can't be combined. */
function checkFilter(database: Database, filter: TaskFilter): void {
  const { status, pod, name, sinceMs, payload } = filter;
  checkTexts(filter);
  if (pod !== undefined && status !== undefined && status !== "claimed") {
    throw new FlotillaError(
      "invalid_option",
      "pod can't be combined with another status than `claimed`: a pod has only tasks that run",
    );
  }
  if (
    filter.group !== undefined &&
    ((status !== undefined && status !== "failed") || pod !== undefined)
  ) {
    throw new FlotillaError(
      "invalid_option",
      "group can't be combined with a pod, or with another status than `failed`: it has failed tasks only",
    );
  }
  if (payload === undefined) return;
  if (name === undefined || sinceMs === undefined) {
    throw new FlotillaError(
      "invalid_option",
      "payload needs `name` and `sinceMs`: no index has values of payloads, so each task must be read",
    );
  }
  if (database.encodesContent) {
    throw new FlotillaError(
      "unsupported",
      "tasks can't be listed by values of their payloads in a store with a codec, which can't read them",
    );
  }
  checkPayload(payload);
}

/** Checks what filters of tasks and of runs have in common. */
export function checkTexts(filter: Readonly<Record<string, unknown>>): void {
  for (const name of ["name", "flow", "group", "at"])
    checkIfGiven(name, filter[name], maxNameChars);
  for (const name of ["tenant", "key", "pod", "session", "run", "parent"])
    checkIfGiven(name, filter[name], maxIdChars);
  // A scope has a name and a key in it.
  checkIfGiven("scope", filter["scope"], maxNameChars + maxIdChars + 10);
  const sources = ["group", "session", "run"].filter((name) => filter[name] !== undefined);
  if (sources.length > 1) {
    throw new FlotillaError(
      "invalid_option",
      `${sources.join(" and ")} can't be combined: give one of them`,
    );
  }
}

function checkIfGiven(what: string, value: unknown, max: number): void {
  if (value !== undefined) checkText(what, value, { max });
}

/** Checks the times of a span. */
export function spanOf({
  sinceMs,
  untilMs,
}: { [Time in keyof ListSpan]: number | undefined }): ListSpan {
  if (sinceMs !== undefined) checkNumber("sinceMs", sinceMs, timeRange);
  if (untilMs !== undefined) checkNumber("untilMs", untilMs, timeRange);
  return { ...(sinceMs !== undefined && { sinceMs }), ...(untilMs !== undefined && { untilMs }) };
}

function checkPayload(payload: unknown): void {
  const isObject = typeof payload === "object" && payload !== null && !Array.isArray(payload);
  const entries = isObject ? Object.entries(payload) : [];
  if (entries.length === 0 || entries.length > maxPaths) {
    throw new FlotillaError(
      "invalid_option",
      `payload must have 1 to ${maxPaths} paths with their values, such as { "order.id": 7 }`,
    );
  }
  for (const [path, value] of entries) {
    const names = path.split(".", maxPathNames + 1);
    const fits = names.length <= maxPathNames && names.every((name) => nameInPath.test(name));
    if (!fits || names.includes("__proto__")) {
      throw new FlotillaError(
        "invalid_option",
        `payload: ${JSON.stringify(path.slice(0, 80))} must be a path of 1 to ${maxPathNames} names of letters, digits, _ and -, with dots between, such as order.id`,
      );
    }
    checkValue(path, value);
  }
}

function checkValue(path: string, value: unknown): void {
  if (value === null || typeof value === "boolean") return;
  if (
    typeof value === "string" &&
    value.length <= maxValueChars &&
    value.isWellFormed() &&
    !value.includes("\u0000")
  )
    return;
  const isExact =
    typeof value === "number" &&
    Number.isFinite(value) &&
    (!Number.isInteger(value) || Number.isSafeInteger(value));
  if (isExact) return;
  throw new FlotillaError(
    "invalid_option",
    `payload: the value of ${path} must be true, false, null, text of at most ${maxValueChars} characters, or a number that is exact, within 2^53`,
  );
}

/** The same filter in another order is the same filter. */
function inOrder(payload: object): [string, unknown][] {
  return Object.entries(payload).toSorted(([one], [other]) => (one < other ? -1 : 1));
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
  const { walked, entries = walked.length, isEnd = walked.length < count } = piece;
  const id = walked.at(-1);
  const row = rows.find((each) => each["walked"] !== null && each["task_id"] === id);
  // The task may have been deleted since its id was read.
  const atMs = id === undefined ? 0 : Number(row?.["created_at"] ?? idTime(id) ?? 0);
  return {
    found: foundIn(rows),
    walked: entries,
    last: id === undefined ? undefined : { id, atMs },
    isEnd,
  };
}

function foundIn(rows: readonly Row[]): WalkEntry[] {
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
