import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { temporaryFile } from "../../store/contract/kinds.ts";
import { openStore } from "../../store/open.ts";
import { planning } from "../../store/contract/planning.ts";
import { render, type Value } from "../../store/sql.ts";
import { sqliteDialect } from "../../store/sqlite/dialect.ts";
import { hotStatements } from "../contract/hot.ts";

const hot = Object.entries(hotStatements);

describe("SQLite finds rows by an index", () => {
  const place = temporaryFile();
  let db: DatabaseSync;

  beforeAll(async () => {
    await (await openStore(`sqlite:${place.path}`)).close();
    db = new DatabaseSync(place.path);
  });
  afterAll(async () => {
    db.close();
    await place.remove();
  });

  test.each(hot)("for %s", (_, statements) => {
    for (const statement of [statements].flat()) {
      const { text, values } = render(statement, sqliteDialect({ jsonbEach: false }));
      const plan = db.prepare(`explain query plan ${text}`).all(...(values as Value[]));
      const steps = plan.map((step) => String(step["detail"]));
      const scans = steps.filter((step) =>
        /^SCAN (flotilla_task|task|flotilla_link|link)\b/.test(step),
      );
      // A scan of a partial index reads only what is in it.
      expect(scans.filter((step) => !step.includes("USING"))).toEqual([]);
      // Rows that are joined without an index are compared each with each.
      expect(steps.filter((step) => /^SCAN .*LEFT-JOIN/.test(step))).toEqual([]);
    }
  });
});

test("SQLite reads each task that is waited for once", async () => {
  const place = temporaryFile();
  await (await openStore(`sqlite:${place.path}`)).close();
  const db = new DatabaseSync(place.path);
  const looks = [hotStatements["wakeWaiters"]!].flat().flatMap((statement) => {
    const { text, values } = render(statement, sqliteDialect({ jsonbEach: false }));
    const plan = db.prepare(`explain query plan ${text}`).all(...(values as Value[]));
    return plan.filter((step) => /^SEARCH dependency\b/.test(String(step["detail"])));
  });
  db.close();
  await place.remove();
  expect(looks).toHaveLength(1);
});

test("SQLite goes through the tasks to recover once, and not again for each of them", async () => {
  const place = temporaryFile();
  await (await openStore(`sqlite:${place.path}`)).close();
  const db = new DatabaseSync(place.path);
  const { text, values } = render(
    [hotStatements["recoverTasks"]!].flat()[0]!,
    sqliteDialect({ jsonbEach: false }),
  );
  const plan = db.prepare(`explain query plan ${text}`).all(...(values as Value[]));
  db.close();
  await place.remove();
  const steps = plan.filter((step) => step["parent"] === 0).map((step) => String(step["detail"]));
  expect(steps.filter((step) => /^(SCAN|SEARCH) /.test(step))).toEqual([
    expect.stringMatching(/^SCAN json_each/),
    expect.stringMatching(/^SEARCH flotilla_task USING INDEX .*task_id=/),
  ]);
});

const fill = (status: string, count: number) => `
  insert into flotilla.task (name, status, claimed_by, payload)
  select case when n % 3 = 0 then 'b' else 'a' end, '${status}', 'pod', '{}' from generate_series(1, ${count}) n`;
const fillParked = (parked: number, count: number) => `
  insert into flotilla.task (name, limited, parked, tenant)
  select 'a', 1, ${parked}, 't' || n % 50 from generate_series(1, ${count}) n`;
const fillHeld = (count: number) => `
  insert into flotilla.task (name, status, claimed_by, limited, tenant, concurrency_key)
  select 'a', 'claimed', 'pod', 1, 't1', 'key/a/k' from generate_series(1, ${count}) n`;
const fillWaits = (count: number) => `
  insert into flotilla.task_dependency (dependency_id, dependent_id)
  select 'awaited-' || n % 100, 'waiter-' || n from generate_series(1, ${count}) n`;
const fillLinks = (count: number) => `
  insert into flotilla.link (from_id, to_id, what)
  select 'x' || n % 100, n, 'task' from generate_series(1, ${count}) n`;
const analyzeWaits = "analyze flotilla.task_dependency";
const all = (status: string) => `update flotilla.task set status = '${status}'`;
const analyze = "analyze flotilla.task";

/** What the planner believes is what it saw last, and a queue is never as it was then. */
const histories: Record<string, readonly string[]> = {
  "that were never looked at": [fill("completed", 20_000), fill("pending", 5_000)],
  "that had nothing waiting when they were analyzed": [
    fill("completed", 20_000),
    analyze,
    fill("pending", 5_000),
  ],
  "that were all waiting when they were analyzed": [
    fill("pending", 20_000),
    analyze,
    all("completed"),
    fill("pending", 100),
  ],
  "that were all claimed when they were analyzed": [
    fill("claimed", 20_000),
    analyze,
    all("completed"),
    fill("pending", 5_000),
  ],
  "that were not there when they were analyzed": [
    analyze,
    "analyze flotilla.link",
    fill("completed", 20_000),
    fillLinks(20_000),
  ],
  "that were all at a gate when they were analyzed": [
    fillParked(4, 20_000),
    analyze,
    all("completed"),
  ],
  "that all waited for others when they were analyzed": [
    fillParked(2, 20_000),
    analyze,
    all("completed"),
  ],
  "that were all claimed behind gates when they were analyzed": [
    fillHeld(20_000),
    analyze,
    all("completed"),
    fillParked(4, 5_000),
  ],
  "that few waited for when they were analyzed": [
    fill("completed", 20_000),
    fillWaits(3),
    analyze,
    analyzeWaits,
    fillWaits(20_000).replace("'waiter-'", "'later-'"),
  ],
  "that many waited for when they were analyzed": [
    fill("completed", 20_000),
    fillWaits(20_000),
    fillLinks(20_000),
    analyze,
    analyzeWaits,
    "analyze flotilla.link",
  ],
  "that came to a gate or to wait since they were analyzed": [
    fill("completed", 20_000),
    analyze,
    fillParked(4, 10_000),
    fillParked(2, 10_000),
  ],
};

/** Statements about named tasks: an index of all blocked or waiting tasks is no way to them. */
const aboutNamed = /^(passGates|wakeWaiters|beginWaiting|releaseCall|takeStep|storeRuns)/;

describe.each(Object.entries(histories))("Postgres finds tasks %s", (_, history) => {
  const planOf = planning(history);

  test.each(hot)("by an index for %s", async (what, statements) => {
    for (const statement of [statements].flat()) {
      const plan = await planOf(statement);
      expect(plan).not.toMatch(/Seq Scan on (task(_dependency|_signal)?|link)\b/);
      // Going through all of an index is no better.
      expect(plan).not.toMatch(/ task_pkey on task.*\n(?! *Index Cond)/);
      expect(
        aboutNamed.test(what) && / task_(for_dependencies|limited|alone_limited) on /.test(plan),
      ).toBe(false);
      // What runs of a key or of a tenant is counted without the rest of what runs.
      expect(plan).not.toMatch(/ task_claimed on task held/);
    }
  });
});

describe("Postgres, where there were few tasks when it planned,", () => {
  const planOf = planning([fill("completed", 3), analyze]);

  // A list compared with every task is nothing while there are three, and takes minutes later.
  test.each(["deleteFinished", "lookAt", "recoverTasks"])(
    "makes no join with the list of %s",
    async (what) => {
      const plan = await planOf([hotStatements[what]!].flat()[0]!);
      expect(plan).not.toMatch(/Semi Join/);
    },
  );
});
