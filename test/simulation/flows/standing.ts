/**
 * What must hold between rows after every write, whoever made it: nobody is parked for what is there
 * already (F6), nor goes on waiting after a cancel, and no queue has more under way than it may.
 */
import { queueScope } from "../../../src/queue/statements/rooms.ts";
import type { Row } from "../../../src/store/database.ts";
import { sql, table } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";
import type { Families } from "./families.ts";
import { beltQueue } from "./machines.ts";

const tasks = table("step_tracker");
const signals = table("step_signal");

const look = sql`
  select run.task_id, 'signal ' || run.awaits as wait from ${tasks} run
  where run.status = 'pending' and run.parked in (1, 5) and exists (
    select 1 from ${signals} signal
    where signal.task_id = run.task_id and signal.name = run.awaits and signal.taken = 0)
  union all
  select run.task_id, 'anything, cancelled' from ${tasks} run
  where run.status = 'pending' and run.parked in (1, 2, 5) and run.cancel_requested = 1
    and run.intent is null
  union all
  select '', group_key || ' ' || count(*) from ${tasks}
  where status = 'claimed' and group_key = ${queueScope(beltQueue.name)}
  group by group_key having count(*) > ${beltQueue.limit}`;

export async function judgeStanding(
  world: World,
  rows: ReadonlyMap<string, Row>,
  families: Families,
): Promise<void> {
  for (const [id, row] of rows) {
    if (row["status"] !== "pending" || Number(row["parked"]) !== 2 || families.mayWait(row))
      continue;
    const run = `${row["name"]} ${id.slice(-6)} at ${row["cursor"]}`;
    world.violate("F6", `${run} waits for others (${row["waiting"]}), which have ended`);
  }
  for (const { task_id: id, wait } of await world.store.database.read(look)) {
    const { name, cursor, parked, waiting } = rows.get(id) ?? {};
    if (id === "") world.violate("limit", `${wait} are claimed`);
    else {
      const run = `${name} ${id.slice(-6)} at ${cursor}`;
      world.violate("F6", `${run} is parked (${parked}, ${waiting}) for ${wait}, which is there`);
    }
  }
}
