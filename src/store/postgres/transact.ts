import { hash } from "node:crypto";
import type pg from "pg";
import { FlotillaError, messageOf } from "../../base/errors.ts";
import type { Row } from "../database.ts";
import type { Query } from "../sql.ts";
import { storeError } from "./errors.ts";

export type Manner = {
  /** What begins a transaction; undefined where a single statement needs none around it. */
  readonly begin: string | undefined;
  /** Part of the names of prepared statements; undefined where they can't have any. */
  readonly prepared: number | undefined;
  readonly types: pg.CustomTypesConfig;
  readonly answerTimeoutMs: number;
};

/** Runs queries together or not at all, and gives the connection back. */
export async function transact(
  client: pg.PoolClient,
  queries: readonly Query[],
  manner: Manner,
): Promise<Row[][]> {
  // Without a listener, a connection that breaks would end the process.
  client.on("error", ignored);
  const alone = queries.length === 1 && manner.begin === undefined;
  const asked = queries.map((query) => configOf(query, manner));
  if (!alone) {
    asked.unshift(configOf({ text: manner.begin ?? "begin", values: [] }, manner));
    asked.push(configOf({ text: "commit", values: [] }, manner));
  }
  const answers = client.pipeline ? await sendAll(client, asked) : await sendEach(client, asked);
  const failure = failureOf(answers);
  client.off("error", ignored);
  // A connection in an unknown state isn't given to anybody else.
  const open = client.getTransactionStatus?.() ?? "I";
  client.release(failure?.code === "unknown_outcome" || open !== "I");
  if (failure) throw failure;
  const tables = answers.map((each) => (each as Fulfilled).value.rows as Row[]);
  return alone ? tables : tables.slice(1, -1);
}

type Answers = PromiseSettledResult<pg.QueryResult>[];
type Fulfilled = PromiseFulfilledResult<pg.QueryResult>;

const ignored = () => {};

/** All at once, so it takes one round trip. */
function sendAll(client: pg.PoolClient, queries: readonly pg.QueryConfig[]): Promise<Answers> {
  return Promise.allSettled(queries.map((query) => client.query(query)));
}

/** One after the other, for a caller's connection that takes no more. */
async function sendEach(
  client: pg.PoolClient,
  queries: readonly pg.QueryConfig[],
): Promise<Answers> {
  const answers: Answers = [];
  for (const query of queries) {
    const [answer] = await sendAll(client, [query]);
    answers.push(answer!);
    if (answer!.status === "fulfilled") continue;
    if (queries.length > 1) await sendAll(client, [{ ...queries[0]!, text: "rollback" }]);
    break;
  }
  return answers;
}

/**
 * What went wrong, if anything. The server refuses what follows a failed statement of a transaction,
 * until its end; one that it took was in no transaction, and is stored.
 */
function failureOf(answers: Answers): FlotillaError | undefined {
  const at = answers.findIndex((answer) => answer.status === "rejected");
  if (at < 0) return undefined;
  const { reason } = answers[at] as PromiseRejectedResult;
  if (answers.slice(at + 1, -1).some((answer) => answer.status === "fulfilled")) {
    const message = `the transaction didn't begin: ${messageOf(reason)}`;
    return new FlotillaError("unknown_outcome", message, { cause: reason });
  }
  return storeError(reason, { sent: true });
}

const names = new Map<string, string>();
const namesKept = 500;
const planned = /^\s*(select|insert|update|delete|with)/;

/**
 * Statements keep their plan on the connection, under a name that follows from their text alone:
 * behind a pooler, others may have prepared theirs on the same connection.
 */
function configOf({ text, values }: Query, manner: Manner): pg.QueryConfig {
  const { prepared, types, answerTimeoutMs } = manner;
  const name = prepared === undefined || !planned.test(text) ? undefined : nameOf(text);
  return {
    text,
    types,
    ...(values.length > 0 && { values: values as unknown[] }),
    ...(name !== undefined && { name: `flotilla_${prepared}_${name}` }),
    query_timeout: answerTimeoutMs,
  } as pg.QueryConfig;
}

function nameOf(text: string): string | undefined {
  let name = names.get(text);
  if (name === undefined && names.size < namesKept) {
    name = hash("sha256", text, "base64url").slice(0, 22);
    names.set(text, name);
  }
  return name;
}
