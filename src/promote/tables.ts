import { FlotillaError } from "../base/errors.ts";
import { logOf } from "../sessions/log/placement.ts";
import type { Database } from "../store/database.ts";
import type { TableName, Value } from "../store/sql.ts";
import { columnsOf, type DeclaredColumn } from "../store/sqlite/inspect.ts";

/**
 * What becomes of each table in a promotion. `moves`: its rows are copied. `place`: its one row is set in
 * the place of the one that the target was made with. `stays`: it is of pods that are up, of one store, or
 * of promotions themselves.
 */
const tables: Readonly<Record<TableName, "moves" | "place" | "stays">> = {
  agent: "moves",
  api_key: "moves",
  archive_aside: "moves",
  audit: "moves",
  bulk: "moves",
  bus_message: "stays",
  // Ids of groups of failed tasks are made with it.
  bus_secret: "place",
  // Marks are numbers of the store that gave them out; a pod with `changes` begins anew.
  change: "stays",
  change_state: "stays",
  credential_version: "moves",
  failure_group: "moves",
  file: "moves",
  file_count: "moves",
  file_part: "moves",
  file_reference: "moves",
  file_remnant: "moves",
  link: "moves",
  log_place: "place",
  log_watermark: "moves",
  message: "moves",
  migration: "stays",
  pod: "stays",
  probe: "stays",
  promotion: "stays",
  quota_server: "stays",
  redrive: "moves",
  schedule: "moves",
  series: "moves",
  series_fold: "moves",
  session: "moves",
  session_fork: "moves",
  session_log: "moves",
  session_user: "moves",
  sign_in: "moves",
  step_journal: "moves",
  task: "moves",
  task_alias: "moves",
  task_dependency: "moves",
  task_event: "moves",
  task_limit: "moves",
  task_pause: "moves",
  task_signal: "moves",
  tenant_count: "moves",
  // Shares in its rows are of pods that are gone, whose calls may still be under way: they end as they
  // would after a restart. What such pods reported is left.
  throttle: "moves",
  throttle_event: "moves",
  throttle_report: "stays",
  token_revocation: "moves",
  turn: "moves",
  turn_checkpoint: "moves",
};

const names = Object.keys(tables) as TableName[];

/** The tables whose rows are copied, in the order of copying. */
export const movedTables: readonly TableName[] = names.filter((name) => tables[name] === "moves");

/**
 * The tables that take no more writes once their store is promoted. Those of the schema and of promotions
 * say where the data is.
 */
export const fencedTables: readonly TableName[] = names.filter(
  (name) => name !== "migration" && name !== "promotion",
);

/** A row as text, column by column, as both databases print their numbers. */
export type CopiedRow = readonly (string | null)[];

/** A table that is copied: its columns, and which of them are its primary key, in order. */
export type CopiedTable = {
  readonly name: TableName;
  readonly columns: readonly DeclaredColumn[];
  readonly key: readonly DeclaredColumn[];
};

/** The values of a row's key. */
export type RowKey = readonly Value[];

/** The tables that are moved, as the source declares them. One of an earlier release may lack some. */
export async function describeTables(
  source: Database,
  { isOlder = false } = {},
): Promise<CopiedTable[]> {
  const declared = await columnsOf(source, movedTables);
  return movedTables.flatMap((name) => {
    const columns = declared.get(name) ?? [];
    const key = columns
      .filter(({ place }) => place > 0)
      .toSorted((one, other) => one.place - other.place);
    if (key.length > 0) return [{ name, columns, key }];
    if (isOlder) return [];
    throw new FlotillaError(
      "store_corrupt",
      `the table ${name} of the source is missing, or has lost its key: restore the store from a back-up`,
    );
  });
}

export function rowKey({ columns, key }: CopiedTable, row: CopiedRow): RowKey {
  return key.map((each) => row[columns.indexOf(each)]!);
}

/**
 * The rows of a table as the target has them, given how many logs its sessions are spread over there; 0
 * leaves them as they are.
 *
 * Numbers of logs are powers of two, so that each log of the target has sessions of one log of the source.
 * It goes on from where that one ended, under its incarnation: clients keep their place. No pod owns it.
 */
export function placeRows(
  { name, columns }: CopiedTable,
  rows: readonly CopiedRow[],
  logs: number,
): readonly CopiedRow[] {
  if (logs === 0) return rows;
  const at = (column: string) => columns.findIndex((each) => each.name === column);
  const withValues = (row: CopiedRow, values: Readonly<Record<string, string | null>>) =>
    row.map((value, place) => {
      const set = values[columns[place]!.name];
      return set === undefined ? value : set;
    });
  if (name === "session") {
    const session = at("session_id");
    return rows.map((row) => withValues(row, { log_id: String(logOf(row[session]!, logs)) }));
  }
  if (name === "session_log") {
    return Array.from({ length: logs }, (_, logId) =>
      withValues(rows[logId % rows.length]!, {
        log_id: String(logId),
        owner: null,
        host: null,
        beat: "0",
      }),
    );
  }
  return rows;
}
