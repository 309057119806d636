import { DatabaseSync, type StatementSync } from "node:sqlite";
import { type Dialect, render, type Statement, type Value } from "../../src/store/sql.ts";
import { openConnection } from "../../src/store/sqlite/connection.ts";

/** Bare `node:sqlite`, with the pragmas that our own connections have. */
export type Bare = { commit(statements: readonly Statement[]): unknown[][][]; close(): void };

export function openBare(path: string): Bare {
  const connection = openConnection({ path });
  const dialect: Dialect = connection.dialect;
  connection.close();
  const db = new DatabaseSync(path);
  db.exec(`pragma journal_mode = wal; pragma synchronous = full; pragma wal_autocheckpoint = 4000;
    pragma cache_size = -32768; pragma temp_store = memory`);
  const prepared = new Map<string, StatementSync>();
  const run = (statement: Statement): unknown[][] => {
    const { text, values } = render(statement, dialect);
    let ready = prepared.get(text);
    if (!ready) {
      ready = db.prepare(text);
      ready.setReturnArrays(true);
      prepared.set(text, ready);
    }
    return ready.all(...(values as Value[])) as unknown as unknown[][];
  };
  return {
    commit(statements) {
      db.exec("begin immediate");
      try {
        const tables = statements.map(run);
        db.exec("commit");
        return tables;
      } catch (error) {
        db.exec("rollback");
        throw error;
      }
    },
    close: () => db.close(),
  };
}
