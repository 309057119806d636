import { errorGroupOf } from "../dead-letters/fingerprint.ts";
import { groupSecretOf } from "../dead-letters/index-sync.ts";
import { storedErrorOf } from "../dead-letters/dead-letter.ts";
import type { Database, Row } from "../store/database.ts";
import type { TaskFilter } from "../tasks/inspect/filter.ts";
import { linkedAfter, planFilter } from "../tasks/inspect/list.ts";
import type { SeenTask } from "./bulk.ts";
import { type BulkWalk, checkMatching, walkMatching } from "./sql.ts";

/** What a part of a walk has found. */
export type Matches = {
  readonly seen: readonly SeenTask[];
  /** The last id that was walked over. */
  readonly lastTaskId: string;
  /** Whether there is nothing behind it. */
  readonly isLast: boolean;
};

// A statement reads this many rows of an index. Where errors or payloads are compared it reads those too:
// then as many as one of a list, and a batch reads as many as a page of a list.
const pageRows = 10_000;
const pageContents = 2_000;
// Ids that may match are read anew for every batch, so they must be fewer than a list may have of them.
const maxFewIds = 2_000;

/** Reads ids that may match, oldest first and behind an id: all that were looked at, and the candidates. */
type IdSource = NonNullable<ReturnType<typeof linkedAfter>>;

/**
 * Walks on until `count` tasks have matched, or `maxPages` statements have found fewer. What it has seen may
 * have changed by the time it returns.
 */
export async function walkMatches(
  database: Database,
  walk: BulkWalk,
  { count, maxPages }: { readonly count: number; readonly maxPages: number },
): Promise<Matches> {
  const { group, payload } = walk.filter;
  const isOfGroup = group === undefined ? () => true : await groupTest(database, group);
  const source = await sourceOf(database, walk.filter);
  const readsIndex = !source && group === undefined && payload === undefined;
  const rows = readsIndex ? pageRows : pageContents;
  const seen: SeenTask[] = [];
  let after = walk.after;
  for (let page = 0; page < maxPages; page++) {
    const wanted = count - seen.length;
    const look = { ...walk, after };
    const { found, lastId, isEnd } = source
      ? await checkSome(database, look, { source, rows, wanted })
      : await walkSome(database, look, { rows, wanted });
    seen.push(...found.filter(isOfGroup).map(toSeen));
    // More of this page may match.
    const isFull = found.length === wanted;
    after = (isFull ? (found.at(-1)!["task_id"] as string) : lastId) ?? after;
    if (!isFull && isEnd) return { seen, lastTaskId: after, isLast: true };
    if (seen.length >= count) break;
  }
  return { seen, lastTaskId: after, isLast: false };
}

/** A page of a walk: what matches in it, where it ends, and whether nothing is behind it. */
type Piece = {
  readonly found: readonly Row[];
  readonly lastId: string | undefined;
  readonly isEnd: boolean;
};

async function walkSome(
  database: Database,
  walk: BulkWalk,
  { rows, wanted }: { readonly rows: number; readonly wanted: number },
): Promise<Piece> {
  const read = await database.read(walkMatching(walk, rows, wanted), { cold: true });
  const end = read.find((row) => row["status"] === null)!;
  return {
    found: read.filter((row) => row["status"] !== null).toSorted(byId),
    lastId: (end["task_id"] as string | null) ?? undefined,
    isEnd: Number(end["walked"]) < rows,
  };
}

async function checkSome(
  database: Database,
  walk: BulkWalk,
  {
    source,
    rows,
    wanted,
  }: { readonly source: IdSource; readonly rows: number; readonly wanted: number },
): Promise<Piece> {
  const { walked, ids } = await source(walk.after, rows);
  const read =
    ids.length === 0 ? [] : await database.read(checkMatching(walk, ids, wanted), { cold: true });
  return {
    found: read.toSorted(byId),
    lastId: walked.at(-1),
    isEnd: walked.length < rows,
  };
}

/** The ids that a filter is about, where they are few or linked; undefined if all tasks are gone through. */
async function sourceOf(database: Database, filter: TaskFilter): Promise<IdSource | undefined> {
  const linked = linkedAfter(database, filter);
  if (linked) return linked;
  const { few } = planFilter(filter);
  if (!few) return undefined;
  const max = Math.min(few.max, maxFewIds);
  const found = await database.read(few.read(max + 1), { cold: true });
  if (found.length > max) return undefined;
  const all = found.flatMap((row) => (row["task_id"] as string | null) ?? []).toSorted();
  return async (after, count) => {
    const ids = all.filter((id) => id > after).slice(0, count);
    return { walked: ids, ids };
  };
}

async function groupTest(database: Database, group: string): Promise<(row: Row) => boolean> {
  const secret = await groupSecretOf(database);
  return (row) =>
    errorGroupOf({ name: row["name"], ...storedErrorOf(row["error"]) }, secret) === group;
}

function toSeen(row: Row): SeenTask {
  return {
    taskId: row["task_id"],
    status: row["status"],
    token: Number(row["claim_token"]),
  };
}

function byId(one: Row, other: Row): number {
  return one["task_id"] < other["task_id"] ? -1 : 1;
}
