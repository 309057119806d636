import { DatabaseSync } from "node:sqlite";
import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { temporaryDatabase, temporaryFile } from "../store/kinds.contract.ts";
import { openStore } from "../store/open.ts";
import { postgresDialect } from "../store/postgres/dialect.ts";
import { render, type Value } from "../store/sql.ts";
import { sqliteDialect } from "../store/sqlite/dialect.ts";
import { getSchedules, insertFired, lookAtDue, moveSchedules } from "./statements.ts";

const task = {
  taskId: "t",
  tenant: "default",
  name: "a",
  payload: "1",
  priority: 0,
  delayMs: 0,
  maxAttempts: null,
  key: "k",
  trace: null,
};
const move = {
  scheduleId: "s",
  seen: { nextAtMs: 1, revision: 1 },
  mark: "m",
  afterMs: 1,
  nextAtMs: 2,
  lastAtMs: 1,
  error: null,
  tasks: [task],
};
/** What a leader does with every pass, or for every schedule that is due. */
const hot = {
  lookAtDue: lookAtDue(1_000, 100),
  moveSchedules: moveSchedules([move]),
  insertFired: insertFired([move]),
  getSchedules: getSchedules(["s"]),
};

describe("however many schedules there are, they are found by an index", () => {
  const place = temporaryFile();
  let sqlite: DatabaseSync;
  let client: pg.Client;
  let remove: () => Promise<void>;

  beforeAll(async () => {
    await (await openStore(`sqlite:${place.path}`)).close();
    sqlite = new DatabaseSync(place.path);
    const made = await temporaryDatabase();
    remove = made.remove;
    await (await openStore(made.url)).close();
    client = new pg.Client(made.url);
    await client.connect();
    await client.query("set plan_cache_mode = force_generic_plan");
    await client.query(`insert into flotilla.schedule (schedule_id, name, pattern, next_at)
      select n::text, 'a', '* * * * *', 2000000000000 from generate_series(1, 20000) n`);
    await client.query("analyze flotilla.schedule");
  });
  afterAll(async () => {
    sqlite.close();
    await client.end();
    await remove();
    await place.remove();
  });

  test.each(Object.entries(hot))("on SQLite for %s", (_, statement) => {
    const { text, values } = render(statement, sqliteDialect({ jsonbEach: false }));
    const plan = sqlite.prepare(`explain query plan ${text}`).all(...(values as Value[]));
    const scans = plan
      .map((step) => String(step["detail"]))
      .filter((step) => /^SCAN (flotilla_schedule|schedule)\b/.test(step));
    expect(scans.filter((step) => !step.includes("USING"))).toEqual([]);
  });

  test.each(Object.entries(hot))("on Postgres for %s", async (_, statement) => {
    const { text, values } = render(statement, postgresDialect({ schema: "flotilla" }));
    await client.query(`prepare hot as ${text}`);
    const given = values.map((value) =>
      typeof value === "string" ? pg.escapeLiteral(value) : String(value),
    );
    const { rows } = await client.query(`explain execute hot(${given.join(", ")})`);
    await client.query("deallocate hot");
    const plan = rows.map((row) => (row as Record<string, string>)["QUERY PLAN"]).join("\n");
    expect(plan).not.toMatch(/Seq Scan on schedule/);
  });
});
