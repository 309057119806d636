import { errorGroupOf } from "../dead-letters/fingerprint.ts";
import { groupSecretOf } from "../dead-letters/index-sync.ts";
import { storedErrorOf } from "../dead-letters/dead-letter.ts";
import type { Database, Row } from "../store/database.ts";
import type { SeenTask } from "./bulk.ts";
import { type BulkWalk, walkMatching } from "./sql.ts";

/** What a part of a walk has found. */
export type Matches = {
  readonly seen: readonly SeenTask[];
  /** The last id that was walked over. */
  readonly lastTaskId: string;
  /** Whether there is nothing behind it. */
  readonly isLast: boolean;
};

// A statement reads this many rows of an index. Where errors are compared it reads their texts too.
const pageRows = 10_000;
const pageErrors = 2_000;

/**
 * Walks on until `count` tasks have matched, or `maxPages` statements have found fewer. What it has seen may
 * have changed by the time it returns.
 */
export async function walkMatches(
  database: Database,
  walk: BulkWalk,
  { count, maxPages }: { readonly count: number; readonly maxPages: number },
): Promise<Matches> {
  const { group } = walk.filter;
  const rows = group === undefined ? pageRows : pageErrors;
  const isOfGroup = group === undefined ? () => true : await groupTest(database, group);
  const seen: SeenTask[] = [];
  let after = walk.after;
  for (let page = 0; page < maxPages; page++) {
    const wanted = count - seen.length;
    const found = await database.read(walkMatching({ ...walk, after }, rows, wanted), {
      cold: true,
    });
    const end = found.find((row) => row["status"] === null)!;
    const matching = found.filter((row) => row["status"] !== null).toSorted(byId);
    seen.push(...matching.filter(isOfGroup).map(toSeen));
    // More of this page may match.
    const isFull = matching.length === wanted;
    after = (isFull ? matching.at(-1)!["task_id"] : end["task_id"]) ?? after;
    if (!isFull && Number(end["walked"]) < rows) return { seen, lastTaskId: after, isLast: true };
    if (seen.length >= count) break;
  }
  return { seen, lastTaskId: after, isLast: false };
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
