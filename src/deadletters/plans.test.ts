import pg from "pg";
import { expect, test } from "vitest";
import { temporaryDatabase } from "../store/kinds.contract.ts";
import { openStore } from "../store/open.ts";
import { postgresDialect } from "../store/postgres/dialect.ts";
import { render, type Value } from "../store/sql.ts";
import { hotStatements } from "../queue/statements/hot.contract.ts";

const ours = ["failedAfter", "failedSince", "failedTasks", "stepTasks", "takeStep", "discardTasks"];

test("Postgres goes to failed tasks directly, also if it believes that there are none", async () => {
  const { url, remove } = await temporaryDatabase();
  await (await openStore(url)).close();
  const client = new pg.Client(url);
  await client.connect();
  await client.query("set plan_cache_mode = force_generic_plan");
  await client.query("alter table flotilla.step_tracker set (autovacuum_enabled = off)");
  const fill = (status: string) =>
    client.query(`insert into flotilla.step_tracker (name, status)
      select 'a', '${status}' from generate_series(1, 5000)`);
  await fill("completed");
  await client.query("analyze flotilla.step_tracker");
  await fill("failed");
  for (const name of ours) {
    for (const statement of [hotStatements[name]!].flat()) {
      const { text, values } = render(statement, postgresDialect({ schema: "flotilla" }));
      await client.query(`prepare hot as ${text}`);
      const given = values.length === 0 ? "" : `(${values.map(literal).join(", ")})`;
      const { rows } = await client.query(`explain execute hot${given}`);
      await client.query("deallocate hot");
      const plan = rows.map((row) => (row as Record<string, string>)["QUERY PLAN"]).join("\n");
      // An index without a condition is one that is read from its beginning to its end.
      expect(plan).not.toMatch(
        /Index (Only )?Scan using step_failed\w* on step_tracker.*\n(?! *Index Cond)/,
      );
      expect(plan).not.toMatch(/Seq Scan on step_tracker/);
    }
  }
  await client.end();
  await remove();
});

function literal(value: Value): string {
  return typeof value === "string" ? pg.escapeLiteral(value) : String(value);
}
