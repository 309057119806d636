import type { Row } from "../database.ts";
import { migrations } from "../schema.ts";
import { render } from "../sql.ts";
import { withoutPool, checkStore, type PostgresStore } from "./config.ts";
import { postgresDialect } from "./dialect.ts";
import { clientClass, connectionConfig, loadDriver, plainNumbers } from "./driver.ts";
import { postgresError } from "./errors.ts";

/** One connection without our settings: it shows the server's own. */
export type PlainConnection = {
  /** The id to cancel the session by. The server's process id, if there is no pooler. */
  readonly processId: number | undefined;
  ask(text: string, values?: unknown[]): Promise<Row[]>;
  end(): Promise<void>;
};

/** Connects without our settings. */
export async function openPlain(store: PostgresStore): Promise<PlainConnection> {
  const driver = await loadDriver();
  const own = withoutPool(store);
  let sent = false;
  try {
    const client = new (clientClass(driver, own))({
      ...connectionConfig(own),
      types: plainNumbers(driver),
    });
    client.on("error", () => {});
    await client.connect();
    sent = true;
    return {
      processId: (client as { processID?: number | null }).processID ?? undefined,
      async ask(text, values = []) {
        try {
          return (await client.query(text, values)).rows as Row[];
        } catch (error) {
          throw postgresError(error, { sent });
        }
      },
      end: () => client.end().catch(() => {}),
    };
  } catch (error) {
    throw postgresError(error, { sent });
  }
}

/** True if the schema that a URL names holds our tables; false if the server cannot be reached. */
export async function holdsOurs(url: string): Promise<boolean> {
  try {
    const store = checkStore(url);
    const { ask, end } = await openPlain(store);
    try {
      const found = await ask(
        "select 1 from pg_attribute where attrelid = to_regclass($1) and attname = 'needs'",
        [`${store.schema}.migration`],
      );
      return found.length > 0;
    } finally {
      await end();
    }
  } catch {
    // The caller runs into the same error again and reports it.
    return false;
  }
}

export type ExpectedIndex = { readonly name: string; readonly text: string };

/** The indexes that migrations up to a version have created, with the statement for each. */
export function expectedIndexes(schema: string, version: number): ExpectedIndex[] {
  const dialect = postgresDialect({ schema });
  const expected = new Map<string, ExpectedIndex>();
  for (const { statements } of migrations.slice(0, version)) {
    for (const statement of statements) {
      const text = render(statement, dialect).text.trim().replaceAll(/\s+/g, " ");
      const [, made] = /^create (?:unique )?index (?:if not exists )?(\w+)/.exec(text) ?? [];
      const [, dropped] = /^drop index (?:if exists )?(?:\w+\.)?(\w+)/.exec(text) ?? [];
      if (made !== undefined) expected.set(made, { name: made, text });
      if (dropped !== undefined) expected.delete(dropped);
    }
  }
  return [...expected.values()];
}
