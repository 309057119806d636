import crypto from "node:crypto";
import type pg from "pg";
import { systemClock } from "../../base/clock.ts";
import type { Row } from "../database.ts";
import type { Query } from "../sql.ts";
import { isReadOnly, isSpoken, postgresError } from "./errors.ts";

export type TransactOptions = BatchOptions & {
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
  options: TransactOptions,
): Promise<Row[][]> {
  const { driver, begin = [], prepared, replan = false } = options;
  const preface = replan ? [...begin, "discard plans"] : begin;
  const before = preface.map((text): Step => ({ text, values: [] }));
  const after: Step[] = begin.length > 0 ? [{ text: "commit", values: [] }] : [];
  const steps = queries.map((query) => stepOf(query, prepared));
  // Without a listener, a connection that breaks would end the process.
  client.on("error", ignored);
  const outcome = await sendBatch(driver, client, [...before, ...steps, ...after], options);
  if ("results" in outcome) {
    client.off("error", ignored);
    client.release();
    const tables = outcome.results.map((result) => result.rows as Row[]);
    return tables.slice(before.length, before.length + queries.length);
  }
  const failure = postgresError(outcome.error, { sent: true, refused: outcome.refused });
  // One that takes no writes may lead to a server that was the primary once.
  let usable = outcome.refused && !isReadOnly(outcome.error);
  // What we have begun ourselves is open yet, though nothing of it can be stored any more.
  if (usable && begin.length > 0) {
    usable = "results" in (await sendBatch(driver, client, [rollback], options));
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

/** One statement of a batch. With a name, the server keeps its plan on the connection. */
type Step = {
  readonly text: string;
  readonly values: readonly (string | number | null)[];
  readonly name?: string;
};

type BatchOptions = { types: pg.CustomTypesConfig; answerTimeoutMs: number };

/** What the driver's connection understands, as far as it is used here. */
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

const asText = (value: string | number | null) => (value === null ? null : String(value));

/** Which statements each connection has kept. */
const kept = new WeakMap<Wire, Set<string>>();

type BatchOutcome =
  | { readonly results: readonly pg.QueryResult[] }
  /** It was refused if the server goes on after the error. Otherwise it may have been done. */
  | { readonly error: unknown; readonly refused: boolean };

/**
 * Sends statements with one end mark behind the last of them, and gives their results. The server
 * takes what comes before an end mark for one transaction, which it commits when it gets there and
 * undoes if any of it fails. So a transaction takes one round trip, without `begin` and `commit`.
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
    /** The names of what is to be parsed, of which the server takes one after the other. */
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
    // The driver's own query collects the results of many statements already.
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
 * Whether the server is ready for more after it has spoken of an error, which it is only where it has
 * undone everything up to the end mark. Its words don't say that: they may be of any language, and
 * some poolers call it an error, too, when they have lost the server and hang up.
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
