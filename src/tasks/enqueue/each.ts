import {
  type ErrorCode,
  FlotillaError,
  hasCode,
  messageOf,
  storeWideCodes,
} from "../../base/errors.ts";
import { checkOptions } from "../../base/options.ts";
import { duplicateKey, type EnqueueOptions } from "./options.ts";
import type { NewTask } from "../sql/enqueue.ts";
import { isInsertFailure, type InsertResult } from "./insert.ts";
import type { InputOf } from "../task.ts";
import type { TaskContract } from "../model.ts";

/** A task with options of its own, given by contract or by name. */
export type EnqueueRow<T extends TaskContract = TaskContract> =
  | { readonly task: T; readonly input: InputOf<T>; readonly options?: RowOptions }
  | { readonly task: string; readonly input?: unknown; readonly options?: RowOptions };

export type RowOptions = Omit<EnqueueOptions, "tx">;

/** The result of one row. */
export type RowOutcome = {
  /** Its index among the rows, from 0. */
  readonly index: number;
} & (
  | { readonly outcome: "created" | "existing" | "replaced"; readonly taskId: string }
  | {
      readonly outcome: "rejected";
      readonly code: ErrorCode;
      readonly message: string;
      readonly details?: Readonly<Record<string, unknown>>;
    }
);

/** How many rows were processed so far, by outcome. */
export type EachCounts = {
  readonly rows: number;
  readonly created: number;
  readonly existing: number;
  readonly replaced: number;
  readonly rejected: number;
};

export type EnqueueEachOptions = {
  /** A transaction of the caller that stores all rows. */
  tx?: unknown;
  /** Stops before the next transaction; rows stored by then stay. */
  signal?: AbortSignal;
  /** Called after every transaction. */
  onProgress?: (counts: EachCounts) => void;
  /**
   * Called with each outcome in order and awaited. Then no outcome is kept, so memory stays
   * bounded.
   */
  onOutcome?: (outcome: RowOutcome) => unknown;
};

export type EachResult = EachCounts & {
  /** In the order of the rows. Empty if `onOutcome` was given. */
  readonly outcomes: readonly RowOutcome[];
};

/** A stream of rows. An error in place of a row rejects that row, so that a reader can continue. */
export type EnqueueRows = Iterable<EnqueueRow | Error> | AsyncIterable<EnqueueRow | Error>;

/** Accepts rows of mixed contracts if each input fits its own contract. */
export type CheckedRows<Rows> = Rows extends Iterable<infer Row> | AsyncIterable<infer Row>
  ? [Misfit<Row>] extends [never]
    ? unknown
    : { readonly rowsWithAnInputThatDoesNotFit: Misfit<Row> }
  : unknown;

type Misfit<Row> = Row extends {
  readonly task: infer T extends TaskContract;
  readonly input: infer I;
}
  ? I extends InputOf<T>
    ? never
    : Row
  : never;

export type EachParts = {
  prepare: (row: EnqueueRow) => NewTask | Promise<NewTask>;
  /**
   * Stores tasks in one transaction, as many as possible. Finding the holders of taken keys may take another.
   */
  insert: (newTasks: readonly NewTask[]) => Promise<InsertResult[]>;
  /** True if a refused transaction can be repeated in parts. */
  splits: boolean;
};

// Large enough to make the cost per row small, and short enough not to block other transactions.
const maxChunkRows = 1_000;
const maxChunkChars = 4 * 1024 * 1024;

type Prepared = { readonly index: number; readonly newTask: NewTask };

// An error thrown by a row's getter or schema rejects the row.
const invalid = { code: "invalid_input", details: undefined } as const;

/** Stores any number of tasks, each with its own outcome, in transactions of bounded size. */
export async function enqueueEach(
  rows: EnqueueRows,
  options: EnqueueEachOptions,
  parts: EachParts,
): Promise<EachResult> {
  checkOptions("enqueueEach", options, ["tx", "signal", "onProgress", "onOutcome"]);
  checkRows(rows);
  const { signal, onProgress, onOutcome } = options;
  const counts = { rows: 0, created: 0, existing: 0, replaced: 0, rejected: 0 };
  const kept: RowOutcome[] = [];
  let unsent: (Prepared | RowOutcome)[] = [];
  let chars = 0;

  const flush = async (): Promise<void> => {
    if (unsent.length === 0) return;
    const chunk = unsent;
    unsent = [];
    chars = 0;
    const stored = await insertRows(
      chunk.filter((each) => "newTask" in each),
      parts,
    );
    for (const each of chunk) {
      const outcome = "newTask" in each ? stored.get(each.index)! : each;
      counts.rows++;
      counts[outcome.outcome]++;
      if (onOutcome) await onOutcome(outcome);
      else kept.push(outcome);
    }
    onProgress?.({ ...counts });
  };

  try {
    let index = 0;
    try {
      for await (const row of rows as AsyncIterable<EnqueueRow | Error>) {
        if (signal?.aborted) throw stopped();
        const each = await prepareRow(index++, row, parts);
        unsent.push(each);
        if ("newTask" in each) chars += each.newTask.payload.length;
        if (unsent.length >= maxChunkRows || chars >= maxChunkChars) await flush();
      }
    } finally {
      // Also if the iteration threw: the rows before the error are valid.
      if (!signal?.aborted) await flush();
    }
    if (unsent.length > 0) throw stopped();
  } catch (error) {
    // The caller needs the counts to continue from there.
    throw withCounts(error, counts);
  }
  return { ...counts, outcomes: kept };
}

function stopped(): FlotillaError {
  return new FlotillaError("cancelled", "enqueueing was stopped");
}

function checkRows(rows: unknown): void {
  if (typeof rows === "object" && rows !== null) {
    if (Symbol.iterator in rows || Symbol.asyncIterator in rows) return;
  }
  throw new FlotillaError(
    "invalid_option",
    "enqueueEach takes an array of rows, or another iterable or async iterable",
  );
}

async function prepareRow(
  index: number,
  row: EnqueueRow | Error,
  { prepare }: EachParts,
): Promise<Prepared | RowOutcome> {
  try {
    if (row instanceof Error) throw row;
    checkOptions("a row", row, ["task", "input", "options"]);
    if (row.options && "tx" in row.options) {
      throw new FlotillaError(
        "invalid_option",
        "tx applies to all rows: give it in the options of enqueueEach",
      );
    }
    return { index, newTask: await prepare(row) };
  } catch (error) {
    return rejected(index, error);
  }
}

/**
 * If the store refuses one row, only that row is rejected. If the store itself fails, the call
 * throws; but once some rows are stored, the remaining ones are rejected with the store's error
 * instead.
 */
async function insertRows(
  rows: readonly Prepared[],
  parts: EachParts,
): Promise<Map<number, RowOutcome>> {
  if (rows.length === 0) return new Map();
  try {
    const stored = await parts.insert(rows.map(({ newTask }) => newTask));
    return new Map(rows.map((row, at) => [row.index, outcomeOf(row, stored[at]!)]));
  } catch (error) {
    if (!isRowError(error, parts)) throw error;
    if (rows.length === 1) return new Map([[rows[0]!.index, rejected(rows[0]!.index, error)]]);
    const middle = Math.ceil(rows.length / 2);
    const first = await insertRows(rows.slice(0, middle), parts);
    const rest = rows.slice(middle);
    const second = await insertRows(rest, parts).catch((trouble: unknown) => {
      const hasStored = [...first.values()].some(({ outcome }) => outcome !== "rejected");
      if (!parts.splits || !hasStored) throw trouble;
      return new Map(rest.map(({ index }) => [index, notInserted(index, trouble)]));
    });
    return new Map([...first, ...second]);
  }
}

/** True if one of the rows caused the refusal, and not the store. */
function isRowError(error: unknown, { splits }: EachParts): boolean {
  if (!(error instanceof FlotillaError)) return false;
  const { code } = error;
  if (code.startsWith("store_") || hasCode(error, "overloaded", ...storeWideCodes)) return false;
  // A statement that the database refused has aborted the caller's transaction.
  return splits || code !== "internal";
}

function outcomeOf({ index, newTask }: Prepared, result: InsertResult): RowOutcome {
  if (isInsertFailure(result)) return notInserted(index, result.error);
  const { taskId, created, replaced } = result;
  if (created) return { index, outcome: "created", taskId };
  if (replaced) return { index, outcome: "replaced", taskId };
  if (newTask.policy?.onDuplicate === "reject")
    return rejected(index, duplicateKey(newTask, taskId));
  return { index, outcome: "existing", taskId };
}

/** A row that the store refused, or gave no answer for, while it stored others. */
function notInserted(index: number, error: unknown): RowOutcome {
  return rejected(index, error, { code: "internal", details: undefined });
}

function rejected(
  index: number,
  error: unknown,
  unless: Pick<FlotillaError, "code" | "details"> = invalid,
): RowOutcome {
  const { code, details } = error instanceof FlotillaError ? error : unless;
  return {
    index,
    outcome: "rejected",
    code,
    message: messageOf(error),
    ...(details && { details }),
  };
}

function withCounts(error: unknown, counts: EachCounts): unknown {
  if (!(error instanceof FlotillaError)) return error;
  const { code, message, details = {}, cause } = error;
  return new FlotillaError(code, `${message} (after ${counts.rows} rows)`, {
    details: { ...details, ...counts },
    cause,
  });
}
