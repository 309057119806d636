import type { Context } from "hono";
import { FlotillaError } from "../../base/errors.ts";
import type { EachResult, EnqueueRow, RowOutcome } from "../../tasks/enqueue/each.ts";
import type { TaskContract } from "../../tasks/task.ts";
import type { Flotilla } from "../../runtime/connect.ts";
import { type JsonRow, parseLine, parseRow, readLines } from "../../runtime/json-rows.ts";
import { checked } from "../validate.ts";
import { shownOf } from "../errors.ts";
import { readBody, typeOf } from "../parse.ts";
import { route, type Route } from "../route.ts";
import { newTask, taskSpecs } from "./tasks.schema.ts";
import { traceOf, noWorkerAmong } from "./tasks.ts";

// A request is held in memory, and so is its answer. Whoever has more sends it in parts.
const maxBodyBytes = 32 * 1024 * 1024;
const maxRows = 100_000;

const typeOfLines = "application/x-ndjson";

export type BulkParts = {
  flotilla: Flotilla;
  contracts?: ReadonlyMap<string, TaskContract> | undefined;
  /** What one row may take. */
  maxRowBytes: number;
};

/**
 * Takes rows `{ name, input, options }`: one per line as NDJSON, or an array as JSON. It answers with
 * how many there were of each outcome, and with the outcome of each in order.
 */
export function bulkRoutes(parts: BulkParts): Route[] {
  return [
    route(taskSpecs.bulk).to(async ({ context }) => {
      const trace = traceOf(context);
      const toTask = ({ name, input, options }: JsonRow): EnqueueRow => {
        const task = parts.contracts?.get(name);
        const rest = { input, options: { ...options, trace } };
        return task ? { task, ...rest } : { task: name, ...rest };
      };
      const rows = await rowsOf(context, parts.maxRowBytes);
      const names = new Map<number, string>();
      const named = rows.map((row, at) => () => {
        const read = row();
        names.set(at, read.name);
        return read;
      });
      const result: EachResult = await parts.flotilla.enqueueEach(tasksOf(named, toTask), {
        signal: context.req.raw.signal,
      });
      const stored = result.outcomes.filter(({ outcome }) => outcome !== "rejected");
      const noWorker = await noWorkerAmong(
        parts.flotilla,
        new Set(stored.map(({ index }) => names.get(index)!)),
      );
      const outcomes = result.outcomes.map(shown);
      return { status: 200, body: { ...result, outcomes, noWorker: [...noWorker] } };
    }),
  ];
}

function shown(outcome: RowOutcome): RowOutcome {
  if (outcome.outcome !== "rejected") return outcome;
  const { message, details } = shownOf(outcome, outcome.details);
  return { ...outcome, message, ...(outcome.details && { details }) };
}

/** A row that makes no sense is rejected in its place. */
function* tasksOf(
  rows: readonly (() => JsonRow)[],
  toTask: (row: JsonRow) => EnqueueRow,
): Generator<EnqueueRow | Error> {
  for (const row of rows) {
    try {
      yield toTask(row());
    } catch (error) {
      yield error as Error;
    }
  }
}

async function rowsOf(c: Context, maxRowBytes: number): Promise<(() => JsonRow)[]> {
  const type = typeOf(c);
  if (type !== "application/json" && type !== typeOfLines) {
    throw new FlotillaError(
      "unsupported",
      `send rows as \`${typeOfLines}\`, one per line, or an array of them as \`application/json\``,
    );
  }
  const body = await readBody(c, maxBodyBytes);
  const rows: (() => JsonRow)[] = [];
  if (type === typeOfLines) {
    for await (const line of readLines([body], { maxBytes: maxRowBytes })) {
      rows.push(() => checkedRow(`line ${line.number}`, parseLine(line)));
      if (rows.length > maxRows) break;
    }
  } else {
    const values = arrayOf(body);
    values.forEach((value, at) =>
      rows.push(() => checkedRow(`row ${at}`, parseRow(`row ${at}`, value))),
    );
  }
  if (rows.length <= maxRows) return rows;
  throw new FlotillaError(
    "payload_too_large",
    `a request takes ${maxRows} rows at most: send them in parts`,
    { details: { maxRows } },
  );
}

/** Each row is held to the same as one task that comes alone. */
function checkedRow(what: string, row: JsonRow): JsonRow {
  checked(what, newTask, row, "body");
  return row;
}

function arrayOf(body: Uint8Array): unknown[] {
  let value: unknown;
  try {
    value = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body));
  } catch (error) {
    throw new FlotillaError("invalid_input", "the body isn't JSON in UTF-8", { cause: error });
  }
  if (Array.isArray(value)) return value as unknown[];
  throw new FlotillaError("invalid_input", "the body must be an array of rows");
}
