import { FlotillaError } from "../base/errors.ts";

/**
 * Statements as data. Values never touch the text, and the few words that differ between databases
 * are named here and spelled by each database's dialect when it renders the statement.
 */
export type Value = string | number | null;

export type TableName =
  | "agent"
  | "api_key"
  | "archive_aside"
  | "credential_version"
  | "failure_group"
  | "file"
  | "file_count"
  | "file_part"
  | "file_reference"
  | "file_remnant"
  | "audit"
  | "session_log"
  | "bus_secret"
  | "bulk"
  | "bus_message"
  | "change"
  | "change_state"
  | "link"
  | "log_place"
  | "log_watermark"
  | "message"
  | "migration"
  | "pod"
  | "probe"
  | "promotion"
  | "quota_server"
  | "redrive"
  | "schedule"
  | "series"
  | "series_fold"
  | "session"
  | "session_fork"
  | "session_user"
  | "sign_in"
  | "step_journal"
  | "task_event"
  | "task_limit"
  | "task_pause"
  | "task_signal"
  | "task"
  | "task_alias"
  | "task_dependency"
  | "tenant_count"
  | "throttle"
  | "throttle_event"
  | "throttle_report"
  | "token_revocation"
  | "turn"
  | "turn_checkpoint";

export type Columns = Readonly<Record<string, ColumnType>>;

/** `content` is text that users put in, which a codec may encode. */
export type ColumnType = "integer" | "text" | "content";

// Parts of a statement's text carry this mark, which no JSON can: an object that a caller passes in
// place of an id must never become part of the text.
const ours = Symbol("ours");

/** The words that databases spell differently; see the constants below. */
export type WordName =
  | "change_columns"
  | "change_horizon"
  | "create_schema"
  | "for_key_share"
  | "for_update"
  | "for_update_of_task"
  | "for_update_of_task_skip_locked"
  | "for_update_skip_locked"
  | "foreign_tables"
  | "json_reader"
  | "key_text"
  | "migration_lock"
  | "new_id"
  | "now"
  | "live_connections"
  | "own_connection"
  | "starting_now"
  | "unlogged"
  | "wake_function";

type Word = { readonly [ours]: true } & (
  | { readonly word: WordName }
  | { readonly table: TableName }
  | { readonly index: string }
  | { readonly droppedIndex: string }
  | { readonly rows: readonly (readonly Value[])[]; readonly columns: Columns }
  | { readonly returning: Statement; readonly companion: Companion }
  | { readonly found: Statement; readonly column: Statement }
  | { readonly locked: Statement; readonly column: Statement }
  | { readonly addressIn: TableName; readonly of: Statement | Word | undefined }
  | { readonly spacious: TableName }
  | { readonly recorder: RecorderName; readonly isOn: boolean }
  | { readonly content: string | null }
  | { readonly json: Statement; readonly path: readonly string[]; readonly value: JsonScalar }
);

/** The triggers that write rows of `change`: what happens to which table. */
export const recorderNames = [
  "task_insert",
  "task_update",
  "task_delete",
  "session_insert",
  "session_update",
  "turn_insert",
] as const;

export type RecorderName = (typeof recorderNames)[number];

export type JsonScalar = string | number | boolean | null;

/** A query in the same transaction that returns the rows which its statement has changed. */
export type Companion = { readonly before: Statement } | { readonly after: Statement };

export type Statement = {
  readonly [ours]: true;
  readonly strings: readonly string[];
  readonly parts: readonly (Value | Statement | Word)[];
};

export function sql(
  strings: TemplateStringsArray,
  ...parts: readonly (Value | Statement | Word)[]
): Statement {
  return { [ours]: true, strings, parts };
}

/** The store's time in milliseconds since 1970: the database's clock, or the test's. */
export const now: Word = { [ours]: true, word: "now" };

/** `now` as the default of a column. */
export const defaultNow: Word = { [ours]: true, word: "starting_now" };

/**
 * The type of columns that are looked up and sorted: text in byte order, not by a language's rules.
 */
export const keyText: Word = { [ours]: true, word: "key_text" };

/** Before `table`: its rows may be lost with the server, and cost less. */
export const unlogged: Word = { [ours]: true, word: "unlogged" };

/** A fresh id, for rows that are inserted by hand. */
export const newId: Word = { [ours]: true, word: "new_id" };

/**
 * Locks the rows of a query for this transaction, if the database needs that, and skips locked
 * ones.
 */
export const forUpdateSkipLocked: Word = { [ours]: true, word: "for_update_skip_locked" };

/** Ends a query with the alias `task` and locks its rows, which this transaction changes next. */
export const forUpdateOfTask: Word = { [ours]: true, word: "for_update_of_task" };

/** Like `forUpdateOfTask`, but skips locked rows. */
export const forUpdateOfTaskSkipLocked: Word = {
  [ours]: true,
  word: "for_update_of_task_skip_locked",
};

/**
 * Ends a query on rows that must stay as they are until this transaction ends, except for columns
 * that are in no key.
 */
export const forKeyShare: Word = { [ours]: true, word: "for_key_share" };

/**
 * Ends a query and locks its rows until this transaction ends. Waits for transactions that have them
 * locked, also by `forKeyShare`.
 */
export const forUpdate: Word = { [ours]: true, word: "for_update" };

/** Creates the schema of our tables, if the database needs one. A separate statement. */
export const createSchema: Word = { [ours]: true, word: "create_schema" };

/** Finds foreign objects in the place of our tables, before ours exist. A separate query. */
export const foreignTables: Word = { [ours]: true, word: "foreign_tables" };

/** Makes what `isJsonAt` needs of the database, if it needs something. A separate statement. */
export const jsonReader: Word = { [ours]: true, word: "json_reader" };

/**
 * Makes the function `wake()`, by which SQL of others wakes idle pods after an insert, if the database can
 * notify. A separate statement.
 */
export const wakeFunction: Word = { [ours]: true, word: "wake_function" };

/** Keeps other processes from migrating until this transaction ends. A separate statement. */
export const migrationLock: Word = { [ours]: true, word: "migration_lock" };

/**
 * The number of the connection that a statement runs on. Null if the end of the connection would not
 * show in `liveConnections`.
 */
export const ownConnection: Word = { [ours]: true, word: "own_connection" };

/** A subquery for the numbers of all open connections. Empty where `ownConnection` is null. */
export const liveConnections: Word = { [ours]: true, word: "live_connections" };

/**
 * The key of `change`, as columns: `mark` and `seq`. Two changes of the same row are in the order of it.
 */
export const changeColumns: Word = { [ours]: true, word: "change_columns" };

/**
 * The highest `mark` up to which every row of `change` is there that ever will be: no transaction that is
 * still open, or begins later, can commit one with this mark or a lower one.
 */
export const changeHorizon: Word = { [ours]: true, word: "change_horizon" };

/** Makes a trigger that records changes, or takes it away. A separate statement. */
export function recorder(name: RecorderName, { isOn }: { isOn: boolean }): Word {
  return { [ours]: true, recorder: name, isOn };
}

/** A table by its plain name; the dialect adds its schema or prefix. */
export function table(name: TableName): Word {
  return { [ours]: true, table: name };
}

/** A column whose name is known only when the statement is made, such as one that a table turns out to have. */
export function column(name: string): Statement {
  if (!/^[a-z][a-z0-9_]*$/.test(name)) throw new FlotillaError("internal", "this is no column");
  return { [ours]: true, strings: [name], parts: [] };
}

/** Leaves space beside the rows of a table, for their next versions. A separate statement. */
export function leaveSpace(name: TableName): Word {
  return { [ours]: true, spacious: name };
}

/** An index by its plain name, prefixed like a table. */
export function index(name: string): Word {
  return { [ours]: true, index: name };
}

/** Drops an index, which databases with schemas find by its schema. A separate statement. */
export function dropIndex(name: string): Word {
  return { [ours]: true, droppedIndex: name };
}

/** A bound value that users put in, which a codec may encode. */
export function contentValue(text: string | null): Word {
  return { [ours]: true, content: text };
}

/** Many rows as one bound value, usable in place of a table. */
export function rows(columns: Columns, values: readonly (readonly Value[])[]): Word {
  return { [ours]: true, rows: values, columns };
}

/**
 * The physical address of a row: valid for one statement, and the fastest access. It is the primary key
 * where the database has no such address. `of` is the table's name or alias in the statement, needed where
 * another part of it has a column of the key's name.
 */
export function rowAddress(name: TableName, of?: Statement | Word): Word {
  return { [ours]: true, addressIn: name, of };
}

/**
 * The condition that a row's address, or a column, is among the results of a query: of a task, if nothing
 * else is given. It is written so that no planner turns it into a join, which would scan the whole table
 * if the statistics are off.
 */
export function isAmong(found: Statement, column: Statement = sql`${rowAddress("task")}`): Word {
  return { [ours]: true, found, column };
}

/**
 * The condition that a row's address is among the results of a query that locks the rows which the other
 * conditions find, and skips locked ones. Always true if the database has no locks on rows.
 */
export function isLockable(locked: Statement, address: Word): Word {
  return { [ours]: true, locked, column: sql`${address}` };
}

/**
 * Ends a change whose rows are needed. If the database cannot return them, a companion query does.
 * It runs before the change if its condition matches exactly the rows to change, which it must
 * lock; or after it, if the change leaves a unique mark.
 */
export function returning(columns: Statement, companion: Companion): Word {
  return { [ours]: true, returning: columns, companion };
}

/**
 * At most `count` rows. The cast is there because SQLite plans a statement again at every run if a
 * bare bound value is the limit, and planning costs more than the statement.
 */
export function limit(count: number): Statement {
  return sql`limit cast(${count} as integer)`;
}

/**
 * A number in the text, not as a bound value: for a constant that a partial index is compared with, which
 * no planner matches with a value that it learns later.
 */
export function literal(value: number): Statement {
  if (!Number.isSafeInteger(value)) throw new FlotillaError("internal", `${value} is no integer`);
  return { [ours]: true, strings: [String(value)], parts: [] };
}

/**
 * The condition that a column of JSON has a value at a path of names. Numbers are compared as numbers.
 * Never true of text that isn't JSON, which rows that were inserted by hand may have.
 */
export function isJsonAt(json: Statement, path: readonly string[], value: JsonScalar): Word {
  return { [ours]: true, json, path, value };
}

/** Joins statements with a separator. */
export function join(statements: readonly Statement[], separator: string): Statement {
  const strings = ["", ...statements.slice(1).map(() => separator), ""];
  return { [ours]: true, strings: statements.length === 0 ? [""] : strings, parts: statements };
}

/**
 * The same statement with all its content encoded. One `contentValue(…)` that is in several places is encoded
 * once, if `encode` is an encoder of `encodingOnce`.
 */
export function encodeContent(statement: Statement, encode: Encode): Statement {
  let changed = false;
  const parts = statement.parts.map((part) => {
    const other = encodePart(part, encode);
    if (other !== part) changed = true;
    return other;
  });
  return changed ? { ...statement, parts } : statement;
}

/** Encodes a text. `of` is the part of a statement that it is in. */
export type Encode = (text: string, of?: object) => string;

/** For the statements of one write, so that one may compare with what another has stored. */
export function encodingOnce(encode: Encode): Encode {
  const known = new WeakMap<object, string>();
  return (text, of) => {
    if (!of) return encode(text);
    const encoded = known.get(of) ?? encode(text);
    known.set(of, encoded);
    return encoded;
  };
}

type Part = Statement["parts"][number];

function encodePart(part: Part, encode: Encode): Part {
  if (part === null || typeof part !== "object" || part[ours] !== true) return part;
  const within = (statement: Statement) => encodeContent(statement, encode);
  if ("strings" in part) return within(part);
  if ("content" in part) return part.content === null ? null : encode(part.content, part);
  if ("rows" in part) return encodeRows(part, encode);
  if ("returning" in part) {
    const { companion } = part;
    const next: Companion =
      "before" in companion
        ? { before: within(companion.before) }
        : { after: within(companion.after) };
    return { ...part, returning: within(part.returning), companion: next };
  }
  if ("found" in part) return { ...part, found: within(part.found), column: within(part.column) };
  if ("locked" in part) return { ...part, locked: within(part.locked) };
  return part;
}

function encodeRows(part: Extract<Word, { readonly rows: unknown }>, encode: Encode): Part {
  const types = Object.values(part.columns);
  if (!types.includes("content")) return part;
  const encoded = part.rows.map((row) =>
    row.map((value, at) =>
      types[at] === "content" && typeof value === "string" ? encode(value) : value,
    ),
  );
  return { ...part, rows: encoded };
}

/** How one kind of database spells what differs. */
export type Dialect = {
  readonly words: Readonly<Record<WordName, string>>;
  /** Whether a change can return its rows. */
  readonly returning: boolean;
  readonly table: (name: string) => string;
  readonly index: (name: string) => string;
  readonly dropIndex: (name: string) => string;
  readonly placeholder: (position: number) => string;
  /** A condition on a column, given the text of a query that finds its values. */
  readonly among: (column: string, found: string) => string;
  /** Whether transactions lock rows, and not only the whole database. */
  readonly locksRows: boolean;
  readonly leaveSpace: (table: string) => string;
  readonly recorder: (name: RecorderName, isOn: boolean) => string;
  /** The columns that are the address of a table's rows. */
  readonly rowAddress: (table: TableName) => readonly string[];
  /** A condition on a column, given as text, that it holds this value at this path. */
  readonly jsonAt: (column: string, given: JsonAt, bind: (value: Value) => string) => string;
  /** A derived table made of bound values. */
  readonly rows: (values: RowValues, columns: Columns, bind: (value: Value) => string) => string;
};

export type JsonAt = { readonly path: readonly string[]; readonly value: JsonScalar };

export type RowValues = readonly (readonly Value[])[];

export type Query = { readonly text: string; readonly values: Value[] };

/** Renders a statement for one kind of database. */
export function render(statement: Statement, dialect: Dialect): Query {
  const values: Value[] = [];
  const bind = (value: Value) => dialect.placeholder(values.push(value));
  const write = (piece: Statement): string => {
    let text = piece.strings[0]!;
    for (let at = 0; at < piece.parts.length; at++) {
      text += spell(piece.parts[at]!) + piece.strings[at + 1]!;
    }
    return text;
  };
  const spell = (part: Value | Statement | Word): string => {
    if (part === null || typeof part !== "object") return bind(part);
    if (part[ours] !== true) {
      throw new FlotillaError(
        "invalid_input",
        "an object was given where text or a number is expected",
      );
    }
    if ("strings" in part) return write(part);
    if ("table" in part) return dialect.table(part.table);
    if ("index" in part) return dialect.index(part.index);
    if ("droppedIndex" in part) return dialect.dropIndex(part.droppedIndex);
    if ("rows" in part) return dialect.rows(part.rows, part.columns, bind);
    if ("returning" in part) return dialect.returning ? `returning ${write(part.returning)}` : "";
    if ("found" in part) return dialect.among(write(part.column), write(part.found));
    if ("locked" in part)
      return dialect.locksRows ? spell(isAmong(part.locked, part.column)) : "true";
    if ("addressIn" in part) {
      const of = part.of === undefined ? "" : `${spell(part.of)}.`;
      return dialect
        .rowAddress(part.addressIn)
        .map((column) => of + column)
        .join(", ");
    }
    if ("spacious" in part) return dialect.leaveSpace(dialect.table(part.spacious));
    if ("recorder" in part) return dialect.recorder(part.recorder, part.isOn);
    if ("content" in part) return bind(part.content);
    if ("json" in part) return dialect.jsonAt(write(part.json), part, bind);
    return dialect.words[part.word];
  };
  return { text: write(statement), values };
}

/**
 * The queries of one transaction, and for each of its statements the index of the query that
 * answers it.
 */
export type Queries = { readonly queries: Query[]; readonly answerAt: readonly number[] };

/** Renders the statements of a transaction, with their companions if the database needs them. */
export function renderAll(statements: readonly Statement[], dialect: Dialect): Queries {
  const queries: Query[] = [];
  const add = (statement: Statement) => queries.push(render(statement, dialect)) - 1;
  const answerAt = statements.map((statement) => {
    const companion = dialect.returning ? undefined : companionOf(statement);
    if (companion === undefined) return add(statement);
    if ("before" in companion) {
      const answer = add(companion.before);
      add(statement);
      return answer;
    }
    add(statement);
    return add(companion.after);
  });
  return { queries, answerAt };
}

function companionOf(statement: Statement): Companion | undefined {
  for (const part of statement.parts) {
    if (part !== null && typeof part === "object" && "companion" in part) return part.companion;
  }
  return undefined;
}
