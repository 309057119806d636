import { type ErrorCode, FlotillaError, messageOf } from "../../base/errors.ts";
import { checkOptions } from "../../base/options.ts";
import { duplicateKey, type EnqueueOptions } from "./options.ts";
import type { NewTask } from "../sql/enqueue.ts";
import { isInsertFailure, type InsertResult } from "./insert.ts";
import type { InputOf, TaskContract } from "../task.ts";

/** One of many tasks, with options of its own: of a contract, or by its name. */
export type EnqueueRow<T extends TaskContract = TaskContract> =
  | { readonly task: T; readonly input: InputOf<T>; readonly options?: RowOptions }
  | { readonly task: string; readonly input?: unknown; readonly options?: RowOptions };

export type RowOptions = Omit<EnqueueOptions, "tx">;

/** What became of one row. */
export type RowOutcome = {
  /** Its place among the rows, from 0. */
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

/** How many rows there were so far, and of which outcome. */
export type EachCounts = {
  readonly rows: number;
  readonly created: number;
  readonly existing: number;
  readonly replaced: number;
  readonly rejected: number;
};

export type EnqueueEachOptions = {
  /** A transaction of the caller's that all of them go into. */
  tx?: unknown;
  /** Stops before the next transaction; what was stored by then stays. */
  signal?: AbortSignal;
  /** Told after every transaction. */
  onProgress?: (counts: EachCounts) => void;
  /** Given each outcome in order, which is waited for. Then none is kept, so memory stays bounded. */
  onOutcome?: (outcome: RowOutcome) => unknown;
};

export type EachResult = EachCounts & {
  /** In the order of the rows. Empty where `onOutcome` was given them. */
  readonly outcomes: readonly RowOutcome[];
};

/** Rows, as they come. An error in place of a row is its rejection, so that a reader can go on. */
export type EnqueueRows = Iterable<EnqueueRow | Error> | AsyncIterable<EnqueueRow | Error>;

/** Nothing to object to rows of several contracts that come in turn, if each input fits its own. */
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
  /** Stores tasks in one transaction, each that can be. Who holds keys that are taken may take another. */
  insert: (newTasks: readonly NewTask[]) => Promise<InsertResult[]>;
  /** Whether a transaction that was refused can be made again in parts. */
  splits: boolean;
};

// What a transaction holds: enough to make its cost small for each, and soon over for everybody else.
const maxChunkRows = 1_000;
const maxChunkChars = 4 * 1024 * 1024;

type Prepared = { readonly index: number; readonly news: NewTask };

/** Stores any number of tasks, each on its own account, in transactions of bounded size. */
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
      chunk.filter((each) => "news" in each),
      parts,
    );
    for (const each of chunk) {
      const outcome = "news" in each ? stored.get(each.index)! : each;
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
        if ("news" in each) chars += each.news.payload.length;
        if (unsent.length >= maxChunkRows || chars >= maxChunkChars) await flush();
      }
    } finally {
      // Also where the rows ended in an error: those that came before it are as good as any.
      if (!signal?.aborted) await flush();
    }
    if (unsent.length > 0) throw stopped();
  } catch (error) {
    // Whoever goes on needs to know from where.
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
    "enqueueEach takes an array of rows, or anything else that can be iterated",
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
      throw new FlotillaError("invalid_option", "tx is for all rows: give it beside them");
    }
    return { index, news: await prepare(row) };
  } catch (error) {
    return rejected(index, error);
  }
}

/**
 * Where the store refuses a row, only that one is rejected. Where the store itself is the trouble, all are,
 * but for those that it has stored by then: then the others are rejected with that trouble.
 */
async function insertRows(
  rows: readonly Prepared[],
  parts: EachParts,
): Promise<Map<number, RowOutcome>> {
  if (rows.length === 0) return new Map();
  try {
    const stored = await parts.insert(rows.map(({ news: newTask }) => newTask));
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

/** Whether it is for one of the rows that all were refused, and not for the store. */
function isRowError(error: unknown, { splits }: EachParts): boolean {
  if (!(error instanceof FlotillaError)) return false;
  const { code } = error;
  if (code.startsWith("store_") || storeCodes.includes(code)) return false;
  // What a database has refused has ended the caller's transaction with it.
  return splits || code !== "internal";
}

const storeCodes: readonly ErrorCode[] = ["closed", "overloaded", "unknown_outcome"];

function outcomeOf({ index, news: newTask }: Prepared, result: InsertResult): RowOutcome {
  if (isInsertFailure(result)) return notInserted(index, result.error);
  const { taskId, created, replaced } = result;
  if (created) return { index, outcome: "created", taskId };
  if (replaced) return { index, outcome: "replaced", taskId };
  if (newTask.policy?.onDuplicate === "reject")
    return rejected(index, duplicateKey(newTask, taskId));
  return { index, outcome: "existing", taskId };
}

/** A row that the store has refused, or didn't answer about, while it has stored others. */
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

// What a row's getter or a schema throws is the row's fault.
const invalid = { code: "invalid_input", details: undefined } as const;

function withCounts(error: unknown, counts: EachCounts): unknown {
  if (!(error instanceof FlotillaError)) return error;
  const { code, message, details = {}, cause } = error;
  return new FlotillaError(code, `${message} (after ${counts.rows} rows)`, {
    details: { ...details, ...counts },
    cause,
  });
}
