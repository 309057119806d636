import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { afterAll, beforeAll } from "vitest";
import { temporaryDatabase, temporaryFile } from "./kinds.ts";
import { openStore } from "../open.ts";
import { postgresDialect } from "../postgres/dialect.ts";
import { type Dialect, render, type Statement, type Value } from "../sql.ts";
import { sqliteDialect } from "../sqlite/dialect.ts";

type PlanningOptions = {
  /** Settings of the connection. Default: those of most of ours. */
  settings?: readonly string[];
};

// Whatever values come later, it is this plan that is used for them.
const usualSettings = ["plan_cache_mode = force_generic_plan"];

/** Gives plans as they are made on our connections, in a database with such a history. */
export function planning(
  history: readonly string[],
  { settings = usualSettings }: PlanningOptions = {},
) {
  let client: pg.Client;
  let remove: () => Promise<void>;

  beforeAll(async () => {
    const made = await temporaryDatabase();
    remove = made.remove;
    await (await openStore(made.url)).close();
    client = new pg.Client(made.url);
    await client.connect();
    for (const setting of settings) await client.query(`set ${setting}`);
    await client.query("alter table flotilla.task set (autovacuum_enabled = off)");
    for (const text of history) await client.query(text);
  });
  afterAll(async () => {
    await client.end();
    await remove();
  });

  const usual = postgresDialect({ schema: "flotilla" });
  return async (statement: Statement, dialect: Dialect = usual): Promise<string> => {
    const { text, values } = render(statement, dialect);
    await client.query(`prepare hot as ${text}`);
    const given = values.length === 0 ? "" : `(${values.map(literal).join(", ")})`;
    const { rows } = await client.query(`explain execute hot${given}`);
    await client.query("deallocate hot");
    return rows.map((row) => (row as Record<string, string>)["QUERY PLAN"]).join("\n");
  };
}

/** Gives the steps of plans that SQLite makes, in a file with our tables. */
export function planningOnSqlite() {
  const place = temporaryFile();
  let sqlite: DatabaseSync;

  beforeAll(async () => {
    await (await openStore(`sqlite:${place.path}`)).close();
    sqlite = new DatabaseSync(place.path);
  });
  afterAll(async () => {
    sqlite.close();
    await place.remove();
  });

  return (statement: Statement): string[] => {
    const { text, values } = render(statement, sqliteDialect({ jsonbEach: false }));
    const plan = sqlite.prepare(`explain query plan ${text}`).all(...(values as Value[]));
    return plan.map((step) => String(step["detail"]));
  };
}

function literal(value: Value): string {
  return typeof value === "string" ? pg.escapeLiteral(value) : String(value);
}
