import { describe, expect, test } from "vitest";
import { planning, planningOnSqlite } from "../store/contract/planning.ts";
import { getSchedules, insertFired, listFirings, readDue, moveSchedules } from "./sql.ts";

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
  lookAtDue: readDue(1_000, 100),
  moveSchedules: moveSchedules([move]),
  insertFired: insertFired([move]),
  getSchedules: getSchedules(["s"]),
  listFirings: listFirings("s", { before: "t", count: 51 }),
};

describe("however many schedules there are, they are found by an index", () => {
  const sqliteStepsOf = planningOnSqlite();
  const planOf = planning([
    `insert into flotilla.schedule (schedule_id, name, pattern, next_at)
      select n::text, 'a', '* * * * *', 2000000000000 from generate_series(1, 20000) n`,
    "analyze flotilla.schedule",
  ]);

  test.each(Object.entries(hot))("on SQLite for %s", (_, statement) => {
    const scans = sqliteStepsOf(statement).filter((step) =>
      /^SCAN (flotilla_schedule|schedule)\b/.test(step),
    );
    expect(scans.filter((step) => !step.includes("USING"))).toEqual([]);
  });

  test.each(Object.entries(hot))("on Postgres for %s", async (_, statement) => {
    const plan = await planOf(statement);
    expect(plan).not.toMatch(/Seq Scan on schedule/);
  });
});
