import type { Database } from "../database.ts";
import { renderAll, type Statement } from "../sql.ts";
import { type Feature, postgresDialect } from "../postgres/dialect.ts";
import { openPostgres } from "../postgres/postgres.ts";

const without: readonly Feature[] = ["skip locked", "returning", "notify"];

export const reducedDialect = postgresDialect({ schema: "flotilla", without });

/** A stand-in for databases that have less than Postgres: it refuses what they wouldn't understand. */
export async function openReduced(url: string): Promise<Database> {
  const database = await openPostgres({ url, without });
  const understood = (statements: readonly Statement[]) => {
    for (const { text } of renderAll(statements, reducedDialect).queries) {
      const unknown = /\b(skip locked|returning|pg_notify)\b/i.exec(text);
      if (unknown) throw new Error(`a reduced database doesn't know \`${unknown[0]}\`: ${text}`);
    }
  };
  return {
    ...database,
    async read(statement, options) {
      understood([statement]);
      return database.read(statement, options);
    },
    async write(statements, options) {
      understood(statements);
      return database.write(statements, options);
    },
  };
}
