import { type Columns, rows, type Statement, type Value } from "../../../store/sql.ts";
import type { Changes } from "../changes.ts";
import type { RecordPlace } from "./heads.ts";

/** A record's rows, and where it goes. */
export type PlacedRecord = RecordPlace & { readonly changes: Changes };

/** Rows of a log, and the offset right before that of their record. */
export type PlacedChanges = {
  readonly at: Pick<RecordPlace["at"], "logId" | "offset">;
  readonly changes: Changes;
};

/** The condition that a row is of a log whose record is stored now. */
export type StoredNow = (logId: Statement) => Statement;

/** Rows of all the records, each with its log as the last column. */
export function rowsOf<Item>(
  columnsOf: Columns,
  records: readonly PlacedChanges[],
  pick: (changes: Changes) => readonly Item[],
  toRow: (item: Item, record: PlacedChanges) => Value[],
): ReturnType<typeof rows> {
  const all: Value[][] = [];
  for (const record of records) {
    for (const item of pick(record.changes)) {
      const row = toRow(item, record);
      row.push(record.at.logId);
      all.push(row);
    }
  }
  return rows({ ...columnsOf, log_id: "integer" }, all);
}

/** Items of all the records, each with its log. */
export function loggedOf<Item extends object>(
  records: readonly PlacedChanges[],
  pick: (changes: Changes) => readonly Item[] | undefined,
): (Item & { readonly logId: number })[] {
  const all: (Item & { readonly logId: number })[] = [];
  for (const { at, changes } of records) {
    for (const item of pick(changes) ?? []) all.push({ ...item, logId: at.logId });
  }
  return all;
}
