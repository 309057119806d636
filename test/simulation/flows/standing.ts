/**
 * What must hold between rows after every write: no run is parked for what is there already (F6), nor goes
 * on waiting after a cancel, and no queue has more under way than its limit says.
 */
import { queueScope } from "../../../src/tasks/sql/task-state.ts";
import type { Row } from "../../../src/store/database.ts";
import type { World } from "../world.ts";
import type { Families } from "./families.ts";
import { beltQueue } from "./machines.ts";

const belt = queueScope(beltQueue.name);

export function judgeStanding(
  world: World,
  rows: ReadonlyMap<string, Row>,
  families: Families,
): void {
  const untaken = new Set<string>();
  for (const signal of world.store.rows("task_signal")) {
    if (signal["taken"] === 0) untaken.add(`${signal["task_id"]}/${signal["name"]}`);
  }
  let underWay = 0;
  for (const [id, row] of rows) {
    if (row["status"] === "claimed" && row["concurrency_key"] === belt) underWay++;
    const parked = Number(row["parked"]);
    if (row["status"] !== "pending" || ![1, 2, 5].includes(parked)) continue;
    const wrong = (why: string) => {
      const run = `${row["name"]} ${id.slice(-6)} at ${row["cursor"]}`;
      world.violate("F6", `${run} is parked (${parked}, ${row["waiting"]}) ${why}`);
    };
    if (parked === 2) {
      if (!families.mayWait(row)) wrong("for others, which have ended");
    } else if (untaken.has(`${id}/${row["awaits"]}`)) {
      wrong(`for signal ${row["awaits"]}, which is there`);
    }
    if (row["cancel_requested"] === 1 && row["intent"] === null) wrong("though it is cancelled");
  }
  if (underWay > beltQueue.limit) world.violate("limit", `${underWay} of ${belt} are claimed`);
}
