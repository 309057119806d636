import { expect, test } from "vitest";
import { movableClock } from "../base/contract/movable-clock.ts";
import { uuidv7 } from "../base/ids.ts";
import { seededRandom } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { sql, table } from "../store/sql.ts";
import { memoryDatabase } from "../store/sqlite/inline.ts";
import { createDeadLetters } from "./dead-letters.ts";
import { createDeadLetterLeader } from "./leader.ts";

test("a pass does a bounded piece of the work, however many tasks have failed", async () => {
  const clock = movableClock();
  const random = seededRandom(1);
  const database = memoryDatabase(clock);
  await migrate(database);
  const tasks = 24_000;
  await database.write([
    sql`insert into ${table("task")} (task_id, name, status, error, last_update)
      with recursive n (i) as (select 1 union all select i + 1 from n where i < ${tasks})
      select printf('t%06d', i), 'a', 'failed',
        '{"code":"handler_failed","message":"no such user ' || (i % 7) || ' in ' || char(97 + i % 5) || '"}', i
      from n`,
  ]);
  let rows = 0;
  const counted: Database = {
    ...database,
    async read(statement) {
      const found = await database.read(statement);
      rows += found.length;
      return found;
    },
  };
  const lead = createDeadLetterLeader({
    database: counted,
    clock,
    random,
    ids: uuidv7(clock, random),
  });
  const letters = createDeadLetters({ database, clock, random, ids: uuidv7(clock, random) });
  const { redriveId } = await letters.redrive({ taskId: "t024000" });
  const taken = async () => (await letters.getRedrive(redriveId))!;
  let passes = 0;
  for (; lead.kept === undefined && passes < 20; passes++) {
    rows = 0;
    await lead.pass();
    // Each task is seen once, and once more for its error.
    expect(rows).toBeLessThanOrEqual(21_000);
    // Before everything is known, nothing is known to be absent.
    expect(await taken()).toMatchObject({ state: "running", taken: lead.kept ? 1 : 0 });
  }
  expect(passes).toBe(3);
  const { index: view } = lead.kept!;
  expect(view.tasks).toBe(tasks - 1);
  expect(view.groups({ limit: 9 })).toMatchObject({ count: 5, tasks: tasks - 1 });

  // From then on a pass costs a page, although everything may have changed meanwhile.
  await database.write([
    sql`update ${table("task")} set status = 'completed' where task_id > 't012000'`,
  ]);
  for (let pass = 0; pass < 15; pass++) {
    await clock.advance(5_000);
    rows = 0;
    await lead.pass();
    expect(rows).toBeLessThanOrEqual(1_100);
  }
  expect(view.tasks).toBe(12_000);
  lead.rest();
  letters.close();
  await database.close();
});
