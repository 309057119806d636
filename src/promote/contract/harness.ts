import { systemClock } from "../../base/clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { systemRandom } from "../../base/random.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { openUnmigrated } from "../../store/open.ts";
import { column, join, sql, table, type TableName } from "../../store/sql.ts";
import type { PromoteParts } from "../promote.ts";
import { openConnection } from "../../store/sqlite/connection.ts";
import { inlineDatabase } from "../../store/sqlite/inline.ts";
import { type CopiedTable, describeTables } from "../tables.ts";

/** Values that the rules of a table ask for. */
const ruled: Readonly<Record<string, string>> = {
  "audit.outcome": "done",
  "bulk.action": "cancel",
  "bulk.state": "stopped",
  "failure_group.state": "ignored",
  "file.place": "store",
  "file_reference.owner_kind": "session",
  "link.what": "run",
  "redrive.state": "done",
  "schedule.missed": "once",
  "session.state": "idle",
  "session.status": "active",
  "task.status": "completed",
  "token_revocation.kind": "jti",
  "turn.outcome": "completed",
};
const oddText = `a "b" \\ 'c' {,} \t\n\u0001 é 漢 🛶`;
/** More than JavaScript's numbers can hold. */
const wide = "9007199254740993";

/** Fills every column of every table that is moved, and adds tasks of which most columns are as by default. */
export async function fillAll(database: Database, { tasks = 0 } = {}): Promise<void> {
  for (const of of await describeTables(database)) {
    const places = of.name === "session_log" ? [0] : [0, 1];
    await database.write(places.map((place) => insertOdd(of, place)));
  }
  if (tasks === 0) return;
  await database.write([
    sql`
      with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < ${tasks})
      insert into ${table("task")} (task_id, name, payload)
      select printf('task-%05d', n), 'bulk', '{"n":' || n || '}' from numbers`,
  ]);
}

function insertOdd(of: CopiedTable, place: number) {
  const values = of.columns.map(({ name, type }) => {
    if (name === "log_id" && of.name.startsWith("session")) return "0";
    if (type === "text") return ruled[`${of.name}.${name}`] ?? `${name} ${place} ${oddText}`;
    if (type === "integer") return String(place + 1);
    return `${wide.slice(0, -1)}${place + 3}`;
  });
  const bound = values.map((value, at) =>
    of.columns[at]!.type === "text" ? sql`${value}` : sql`cast(${value} as bigint)`,
  );
  const names = of.columns.map(({ name }) => column(name));
  return sql`
    insert into ${table(of.name)} (${join(names, ", ")}) values (${join(bound, ", ")})`;
}

/** A file on this thread, which opens faster than on threads of its own. */
export function openFile(path: string, { create = false } = {}): Database {
  return inlineDatabase(openConnection({ path, create, durability: "relaxed" }));
}

export async function fillFile(path: string, options?: { tasks?: number }): Promise<void> {
  const database = openFile(path, { create: true });
  await migrate(database);
  await fillAll(database, options);
  await database.close();
}

/** What a promotion is given in a process of its own, on stores that are open. */
export function partsOf(source: Database, target: Database): PromoteParts {
  return {
    source,
    target,
    from: "sqlite:app.db",
    to: "postgres://…@host/app",
    clock: systemClock,
    random: systemRandom,
    ids: uuidv7(systemClock, systemRandom),
    host: "this process",
    // Whatever held the target before was killed by the test.
    isGone: () => true,
    defaultLogs: 8,
  };
}

export function openTarget(url: string): Promise<Database> {
  return openUnmigrated(url, { notifies: false });
}

/** All rows of the moved tables, as text. */
export async function allRows(
  database: Database,
  like: Database,
): Promise<Record<string, unknown>> {
  const found: [TableName, unknown][] = [];
  for (const { name, columns } of await describeTables(like)) {
    const texts = columns.map((each) => {
      const own = column(each.name);
      return sql`cast(${own} as text) as ${own}`;
    });
    const rows = await database.read(sql`select ${join(texts, ", ")} from ${table(name)}`);
    found.push([
      name,
      rows.map((row) => JSON.stringify(columns.map((each) => row[each.name]))).toSorted(),
    ]);
  }
  return Object.fromEntries(found);
}
