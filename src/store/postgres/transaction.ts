import crypto from "node:crypto";
import type pg from "pg";
import { systemClock } from "../../base/clock.ts";
import type { Row } from "../database.ts";
import type { Query } from "../sql.ts";
import { isReadOnly, isSpoken, postgresError } from "./errors.ts";

export type TransactOptions = BatchOptions & {
  readonly driver: typeof pg;
  /** The statements that begin a transaction, if the session does not have our settings. */
  readonly begin: readonly string[] | undefined;
  /** Part of the names of prepared statements; undefined if statements must be unnamed. */
  readonly prepared: number | undefined;
  /** Whether the connection should discard its plans. */
  readonly replan?: boolean;
};

/** One statement of a batch. With a name, the server keeps its plan on the connection. */
type Step = {
  readonly text: string;
  readonly values: readonly (string | number | null)[];
  readonly name?: string;
};

type BatchOptions = { types: pg.CustomTypesConfig; answerTimeoutMs: number };

/** The part of the driver's connection that is used here. */
type Wire = {
  stream: { cork?(): void; uncork?(): void };
  parse(message: { text: string; name: string }): void;
  bind(message: {
    statement: string;
    values: readonly unknown[];
    valueMapper: typeof asText;
  }): void;
  describe(message: { type: "P"; name: string }): void;
  execute(message: { portal: string }): void;
  sync(): void;
  on(event: WireEvent, listener: () => void): void;
  off(event: WireEvent, listener: () => void): void;
};
type WireEvent = "parseComplete" | "readyForQuery" | "end";

type BatchOutcome =
  | { readonly results: readonly pg.QueryResult[] }
  /**
   * `refused` is true if the server continues after the error. Otherwise the batch may have been
   * committed.
   */
  | { readonly error: unknown; readonly refused: boolean };

const ignored = () => {};
const rollback: Step = { text: "rollback", values: [] };

const names = new Map<string, string>();
const namesKept = 2_000;
const planned = /^\s*(select|insert|update|delete|with)/;
const asText = (value: string | number | null) => (value === null ? null : String(value));

/** The prepared statements of each connection. */
const kept = new WeakMap<Wire, Set<string>>();

/** Runs queries in one transaction, and releases the connection. */
export async function transact(
  client: pg.PoolClient,
  queries: readonly Query[],
  options: TransactOptions,
): Promise<Row[][]> {
  const { driver, begin = [], prepared, replan = false } = options;
  const preface = replan ? [...begin, "discard plans"] : begin;
  const before = preface.map((text): Step => ({ text, values: [] }));
  const after: Step[] = begin.length > 0 ? [{ text: "commit", values: [] }] : [];
  const steps = queries.map((query) => stepOf(query, prepared));
  // Without a listener, a broken connection would end the process.
  client.on("error", ignored);
  const outcome = await sendBatch(driver, client, [...before, ...steps, ...after], options);
  if ("results" in outcome) {
    client.off("error", ignored);
    client.release();
    const tables = outcome.results.map((result) => result.rows as Row[]);
    return tables.slice(before.length, before.length + queries.length);
  }
  const failure = postgresError(outcome.error, { sent: true, refused: outcome.refused });
  // A read-only connection may lead to a former primary, so it is closed.
  let usable = outcome.refused && !isReadOnly(outcome.error);
  // The transaction that we began is still open, though it can only be rolled back.
  if (usable && begin.length > 0) {
    usable = "results" in (await sendBatch(driver, client, [rollback], options));
  }
  // A connection in an unknown state is not reused, and may emit more errors.
  if (usable) client.off("error", ignored);
  client.release(!usable);
  throw failure;
}

/**
 * Sends statements with one sync message after the last, and returns their results. The server
 * treats everything before a sync as one transaction, commits it at the sync, and rolls it back if
 * any part fails. So a transaction takes one round trip, without `begin` and `commit`.
 */
export function sendBatch(
  driver: typeof pg,
  client: pg.ClientBase,
  steps: readonly Step[],
  { types, answerTimeoutMs }: BatchOptions,
): Promise<BatchOutcome> {
  return new Promise((resolve) => {
    let wire: Wire | undefined;
    let names = new Set<string>();
    /** The names that are being parsed, in the order in which the server confirms them. */
    const parsing: string[] = [];
    const onParsed = () => void names.add(parsing.shift()!);
    const submit = (given: Wire): void => {
      wire = given;
      names = kept.get(wire) ?? names;
      kept.set(wire, names);
      wire.stream.cork?.();
      for (const { text, values, name = "" } of steps) {
        if (name === "" || !(names.has(name) || parsing.includes(name))) {
          wire.parse({ text, name });
          parsing.push(name);
        }
        wire.bind({ statement: name, values, valueMapper: asText });
        wire.describe({ type: "P", name: "" });
        wire.execute({ portal: "" });
      }
      wire.sync();
      wire.stream.uncork?.();
      if (parsing.length > 0) wire.on("parseComplete", onParsed);
    };
    // The driver's own query already collects the results of several statements.
    const query = new driver.Query({ text: "", types } as pg.QueryConfig);
    Object.assign(query, {
      submit,
      query_timeout: answerTimeoutMs,
      callback(error: unknown, results: pg.QueryResult | pg.QueryResult[]) {
        wire?.off("parseComplete", onParsed);
        if (!error) return resolve({ results: [results].flat() });
        if (!wire || !isSpoken(error)) return resolve({ error, refused: false });
        const settle = (refused: boolean) => resolve({ error, refused });
        void goesOn(wire, answerTimeoutMs).then(settle);
      },
    });
    client.query(query);
  });
}

/**
 * Statements keep their plan on the connection, under a name that follows from their text alone:
 * behind a pooler, another process may have prepared the same statement on the connection.
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

/**
 * True if the server is ready for more after an error, which it is only if it has rolled back
 * everything up to the sync. The error message does not show that: it may be in any language, and
 * some poolers also report an error when they have lost the server and disconnect.
 */
function goesOn(wire: Wire, limitMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const settle = (ready: boolean) => {
      cancel();
      wire.off("readyForQuery", onReady);
      wire.off("end", onEnd);
      resolve(ready);
    };
    const onReady = () => settle(true);
    const onEnd = () => settle(false);
    const cancel = systemClock.after(limitMs, onEnd);
    wire.on("readyForQuery", onReady);
    wire.on("end", onEnd);
  });
}
