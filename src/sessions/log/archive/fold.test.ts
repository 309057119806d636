import { expect, test } from "vitest";
import { between, seededRandom } from "../../../base/random.ts";
import { memoryKind } from "../../../store/contract/kinds.ts";
import type { Database } from "../../../store/database.ts";
import { migrate } from "../../../store/migrate.ts";
import { sql, table, type TableName } from "../../../store/sql.ts";
import { randomRecords } from "../../contract/random-records.ts";
import { changesOf } from "../changes.ts";
import type { LogRecord } from "../journal.ts";
import { insertWatermark, storeFlush } from "../sql/archive.ts";
import { startFold } from "./fold.ts";
import { placeOnStreams } from "../place.ts";

const first = { logId: 0, incarnation: "life", offset: 0, recordId: "", chain: "" };
const tables: readonly TableName[] = [
  "session",
  "session_user",
  "message",
  "turn_checkpoint",
  "step_journal",
  "turn",
  "task",
  "task_alias",
  "task_dependency",
  "link",
];
const order: Readonly<Record<string, ReturnType<typeof sql>>> = {
  session: sql`session_id`,
  session_user: sql`session_id, user_id`,
  message: sql`session_id, seq`,
  turn_checkpoint: sql`session_id`,
  step_journal: sql`owner_id, part, key`,
  turn: sql`session_id, epoch, attempt`,
  task: sql`task_id`,
  task_alias: sql`alias_id`,
  task_dependency: sql`dependent_id, place`,
  link: sql`from_id, to_id`,
};

/** Everything that is stored, but for where in the log it comes from. */
async function rowsOf(database: Database) {
  const found = await Promise.all(
    tables.map((name) => database.read(sql`select * from ${table(name)} order by ${order[name]!}`)),
  );
  const times = { last_offset: 0, started_at: 0, at: 0, run_at: 0, created_at: 0, last_update: 0 };
  return found.map((rows) => rows.map((row) => ({ ...row, ...times, dependents: 0 })));
}

/** Stores records in transactions of so many. Those that can't be told in one are stored in two. */
async function storedIn(records: readonly LogRecord[], size: () => number) {
  const { database } = await memoryKind.open();
  await migrate(database);
  await placeOnStreams(database);
  await database.write([insertWatermark(first)]);
  let from = 0;
  let flushes = 0;
  while (from < records.length) {
    const fold = startFold();
    let to = from;
    for (const most = from + size(); to < Math.min(most, records.length); to++) {
      if (!fold.add(changesOf(records[to]!))) break;
    }
    const at = { ...first, offset: to, recordId: `r${to}` };
    const flush = { from, to: at, flushId: `f${++flushes}`, changes: fold.changes, aside: [] };
    const [moved] = await database.write(storeFlush(flush));
    expect(moved).toHaveLength(1);
    // Sent again, it stores nothing and refuses nothing.
    const again = await database.write(storeFlush({ ...flush, flushId: `f${++flushes}` }));
    expect(again[0]).toEqual([]);
    from = to;
  }
  const rows = await rowsOf(database);
  await database.close();
  return rows;
}

test("S9: records that are stored many at a time leave what they leave one by one", async () => {
  const filled = new Set<TableName>();
  for (const seed of [1, 2, 3, 4, 5, 6]) {
    const random = seededRandom(seed);
    const next = randomRecords(random, ["s1", "s2", "s3", "s4", "s5", "s6"]);
    const records = Array.from({ length: 120 }, next);
    const oneByOne = await storedIn(records, () => 1);
    tables.forEach((name, at) => oneByOne[at]!.length > 0 && filled.add(name));
    expect(await storedIn(records, () => between(random, 1, 15))).toEqual(oneByOne);
    expect(await storedIn(records, () => 1_000)).toEqual(oneByOne);
  }
  expect([...filled].toSorted()).toEqual(tables.toSorted());
});
