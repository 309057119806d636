import { migrationStatements, refuseNewer, type SchemaState, stateOfOurs } from "./migrate.ts";
import { type StoreLocation, locateStore, type Store } from "./open.ts";
import { postgresDialect } from "./postgres/dialect.ts";
import { refuseMarked } from "./promotion-mark.ts";
import { migrations } from "./schema.ts";
import { type Dialect, render, type Statement } from "./sql.ts";
import { sqliteDialect } from "./sqlite/dialect.ts";
import { fileFacts, openReadOnly } from "./sqlite/inspect.ts";

export type MigrationPlan = SchemaState & {
  /** The text of every statement that `migrate` would run, in order. */
  readonly statements: readonly string[];
};

/** What `migrate` would do. Changes nothing, and creates no file. */
export async function planMigrations(store: Store): Promise<MigrationPlan> {
  const location = locateStore(store);
  const { mark, ...state } = await stateOf(location);
  refuseMarked(mark);
  refuseNewer(state);
  const dialect =
    location.kind === "sqlite"
      ? sqliteDialect({ jsonbEach: false })
      : postgresDialect(location.store);
  const statements = state.pending.flatMap((migration, at) =>
    migrationStatements(state.version + 1 + at, migration),
  );
  return { ...state, statements: statements.map((each) => asText(each, dialect)) };
}

async function stateOf(location: StoreLocation): Promise<SchemaState> {
  if (location.kind === "sqlite" && fileFacts(location.path).kind === "missing") {
    return { version: 0, needs: 0, known: migrations.length, pending: migrations };
  }
  const database =
    location.kind === "sqlite"
      ? openReadOnly(location.path)
      : await (await import("./postgres/postgres.ts")).openPostgres(location.store);
  try {
    return await stateOfOurs(database);
  } finally {
    await database.close();
  }
}

/** A statement with its values inlined, for display. The real one binds them. */
function asText(statement: Statement, dialect: Dialect): string {
  const { text, values } = render(statement, {
    ...dialect,
    placeholder: (position) => `{{${position}}}`,
  });
  const filled = text.replaceAll(/\{\{(\d+)\}\}/g, (_, position: string) => {
    const value = values[Number(position) - 1]!;
    return typeof value === "string" ? `'${value.replaceAll("'", "''")}'` : String(value);
  });
  return `${filled
    .trim()
    .replaceAll(/\n {4,}(?!\))/g, "\n  ")
    .replaceAll(/\n +\)/g, "\n)")};`;
}
