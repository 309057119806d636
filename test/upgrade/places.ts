import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { temporaryDatabase, temporaryFile } from "../../src/store/contract/kinds.ts";

/** An empty database of a kind, which plain SQL can be run on before anything of ours has seen it. */
export type Place = {
  readonly url: string;
  exec(text: string): Promise<void>;
  /** Every table, column, default, index and constraint there is, in words. */
  shape(): Promise<string[]>;
  remove(): Promise<void>;
};

export const kinds: readonly { readonly dialect: string; empty(): Promise<Place> }[] = [
  {
    dialect: "sqlite",
    async empty() {
      const { path, remove } = temporaryFile();
      const using = <Answer>(ask: (database: DatabaseSync) => Answer): Answer => {
        const database = new DatabaseSync(path, { timeout: 30_000 });
        try {
          return ask(database);
        } finally {
          database.close();
        }
      };
      return {
        url: `sqlite:${path}`,
        exec: async (text) => using((database) => database.exec(text)),
        async shape() {
          const made = using((database) => database.prepare(sqliteShape).all());
          // Line breaks and indents are no part of it.
          return made.map(({ shape }) => String(shape).replaceAll(/\s+/g, " "));
        },
        remove,
      };
    },
  },
  {
    dialect: "postgres",
    async empty() {
      const { url, remove } = await temporaryDatabase();
      const ask = async (text: string): Promise<{ shape: string }[]> => {
        const client = new pg.Client(url);
        await client.connect();
        try {
          return (await client.query(text)).rows as { shape: string }[];
        } finally {
          await client.end();
        }
      };
      return {
        url,
        exec: async (text) => void (await ask(text)),
        shape: async () => (await ask(postgresShape)).map(({ shape }) => shape),
        remove,
      };
    },
  },
];

const sqliteShape = `
  select coalesce(sql, name) as shape from sqlite_schema where name like '%flotilla%' order by name`;

const postgresShape = `
  select shape from (
    select format('column %s.%s %s collate %s default %s nullable %s', table_name, column_name,
      data_type, collation_name, column_default, is_nullable) as shape
    from information_schema.columns where table_schema = 'flotilla'
    union all
    select indexdef from pg_indexes where schemaname = 'flotilla'
    union all
    select format('table %s with %s', relname, reloptions) from pg_class
    where relnamespace = 'flotilla'::regnamespace and relkind = 'r'
    union all
    select format('constraint on %s: %s', conrelid::regclass, pg_get_constraintdef(oid))
    from pg_constraint where connamespace = 'flotilla'::regnamespace
  ) made order by shape`;
