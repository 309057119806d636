/**
 * What must hold between rows after every write, whoever made it: nobody is parked for what is there
 * already (F6), nor goes on waiting after a cancel, and no queue has more under way than it may.
 */
import { queueScope } from "../../../src/queue/statements/rooms.ts";
import type { Row } from "../../../src/store/database.ts";
import { sql, table } from "../../../src/store/sql.ts";
import type { World } from "../world.ts";
import { beltQueue } from "./machines.ts";

const tasks = table("step_tracker");
const signals = table("step_signal");
const waits = table("step_wait");

const look = sql`
  select run.task_id, 'signal ' || run.awaits as wait from ${tasks} run
  where run.status = 'pending' and run.parked in (1, 5) and exists (
    select 1 from ${signals} signal
    where signal.task_id = run.task_id and signal.name = run.awaits and signal.taken = 0)
  union all
  select run.task_id, 'others' from ${tasks} run
  where run.status = 'pending' and run.parked = 2 and not exists (
    select 1 from ${waits} wait join ${tasks} awaited on awaited.task_id = wait.awaited_id
    where wait.waiter_id = run.task_id and awaited.status in ('pending', 'claimed')
      and (run.waiting is null or awaited.parent_id = run.task_id
        and substr(awaited.unique_key, 1, length(run.awaits)) = run.awaits))
  union all
  select run.task_id, 'anything, cancelled' from ${tasks} run
  where run.status = 'pending' and run.parked in (1, 2, 5) and run.cancel_requested = 1
    and run.intent is null
  union all
  select '', group_key || ' ' || count(*) from ${tasks}
  where status = 'claimed' and group_key = ${queueScope(beltQueue.name)}
  group by group_key having count(*) > ${beltQueue.limit}`;

export async function judgeStanding(world: World, rows: ReadonlyMap<string, Row>): Promise<void> {
  for (const { task_id: id, wait } of await world.store.database.read(look)) {
    const { name, cursor, parked, waiting } = rows.get(id) ?? {};
    if (id === "") world.violate("limit", `${wait} are claimed`);
    else {
      const run = `${name} ${id.slice(-6)} at ${cursor}`;
      world.violate("F6", `${run} is parked (${parked}, ${waiting}) for ${wait}, which is there`);
    }
  }
}
