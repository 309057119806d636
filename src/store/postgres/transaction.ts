import crypto from "node:crypto";
import type pg from "pg";
import type { Row } from "../database.ts";
import type { Query } from "../sql.ts";
import { type BatchOptions, sendBatch, type Step } from "./batch.ts";
import { isReadOnly, storeError } from "./errors.ts";

export type Manner = BatchOptions & {
  readonly driver: typeof pg;
  /** What begins a transaction where the session doesn't have our settings. */
  readonly begin: readonly string[] | undefined;
  /** Part of the names of prepared statements; undefined where they can't have any. */
  readonly prepared: number | undefined;
  /** Whether the connection is to forget how it has planned its statements. */
  readonly replan?: boolean;
};

const ignored = () => {};

/** Runs queries together or not at all, and gives the connection back. */
export async function transact(
  client: pg.PoolClient,
  queries: readonly Query[],
  manner: Manner,
): Promise<Row[][]> {
  const { driver, begin = [], prepared, replan = false } = manner;
  const preface = replan ? [...begin, "discard plans"] : begin;
  const before = preface.map((text): Step => ({ text, values: [] }));
  const after: Step[] = begin.length > 0 ? [{ text: "commit", values: [] }] : [];
  const asked = queries.map((query) => stepOf(query, prepared));
  // Without a listener, a connection that breaks would end the process.
  client.on("error", ignored);
  const outcome = await sendBatch(driver, client, [...before, ...asked, ...after], manner);
  if ("results" in outcome) {
    client.off("error", ignored);
    client.release();
    const tables = outcome.results.map((result) => result.rows as Row[]);
    return tables.slice(before.length, before.length + queries.length);
  }
  const failure = storeError(outcome.error, { sent: true, refused: outcome.refused });
  // One that takes no writes may lead to a server that was the primary once.
  let usable = outcome.refused && !isReadOnly(outcome.error);
  // What we have begun ourselves is open yet, though nothing of it can be stored any more.
  if (usable && begin.length > 0) {
    usable = "results" in (await sendBatch(driver, client, [rollback], manner));
  }
  // A connection in an unknown state isn't given to anybody else, and may have more to complain of.
  if (usable) client.off("error", ignored);
  client.release(!usable);
  throw failure;
}

const rollback: Step = { text: "rollback", values: [] };

const names = new Map<string, string>();
const namesKept = 500;
const planned = /^\s*(select|insert|update|delete|with)/;

/**
 * Statements keep their plan on the connection, under a name that follows from their text alone:
 * behind a pooler, others may have prepared theirs on the same connection.
 */
function stepOf({ text, values }: Query, prepared: number | undefined): Step {
  const name = prepared === undefined || !planned.test(text) ? undefined : nameOf(text);
  return { text, values, ...(name !== undefined && { name: `flotilla_${prepared}_${name}` }) };
}

function nameOf(text: string): string | undefined {
  let name = names.get(text);
  if (name === undefined && names.size < namesKept) {
    name = crypto.hash("sha256", text, "base64url").slice(0, 22);
    names.set(text, name);
  }
  return name;
}
