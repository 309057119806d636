import { index, sql, type Statement, table, type TableName } from "../sql.ts";

/**
 * What SQLite says to a writer of a file whose data has gone elsewhere. A trigger takes its message only as
 * a part of its text.
 */
export const fencedMessage = "flotilla: the data of this file is moved to another store";
const refuse = sql`
  begin select raise(abort, 'flotilla: the data of this file is moved to another store'); end`;

const acts = { insert: sql`insert`, update: sql`update`, delete: sql`delete` };

/**
 * Refuses every write to these tables, of any release and of any process that has the file open: a mark
 * would stop only those that open it later.
 */
export function fenceTables(names: readonly TableName[]): Statement[] {
  return names.flatMap((name) =>
    Object.entries(acts).map(
      ([act, word]) => sql`
        create trigger if not exists ${index(`fence_${name}_${act}`)}
        before ${word} on ${table(name)} ${refuse}`,
    ),
  );
}

export function unfenceTables(names: readonly TableName[]): Statement[] {
  return names.flatMap((name) =>
    Object.keys(acts).map((act) => sql`drop trigger if exists ${index(`fence_${name}_${act}`)}`),
  );
}
