import { afterEach, beforeEach } from "vitest";
import { openTasks, type TasksHarness, rowsOf } from "../../tasks/contract/harness.ts";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { sql, table } from "../../store/sql.ts";
import { createSchedules, type Schedules } from "../schedules.ts";
import { createFiring, type Fired } from "../fire.ts";
import { schedule } from "../schedule.ts";

/** So long that no test sees a time come by itself. */
export const everyMs = 10 * 24 * 60 * 60_000;
export const rows = table("schedule");

/** A store without schedules before each test, and a leader that polls when it is told to. */
export function openSchedules(kind: StoreKind) {
  let queue: TasksHarness;
  let schedules: Schedules;
  let fired: Fired[];
  beforeEach(async () => {
    queue = await openTasks(kind);
    await queue.database.write([sql`delete from ${rows}`]);
    schedules = createSchedules(queue);
    fired = [];
  });
  afterEach(() => queue.close());

  return {
    get queue() {
      return queue;
    },
    get schedules() {
      return schedules;
    },
    /** What leaders have told of. */
    get fired() {
      return fired;
    },

    /** A leader that does one pass. */
    async lead(database: Database = queue.database): Promise<void> {
      const firing = createFiring({
        podId: "leader",
        database,
        clock: queue.clock,
        ids: queue.ids,
        everyMs: 1_000,
        leads: () => true,
        onFired: (each) => fired.push(each),
      });
      await firing.pass();
      await firing.stop();
    },

    /** Lets so many of a schedule's times have come by. */
    letCome: (scheduleId: string, times: number) =>
      queue.database.write([
        sql`update ${rows} set next_at = next_at - ${times * everyMs},
          after_at = after_at - ${times * everyMs} where schedule_id = ${scheduleId}`,
      ]),

    tasksOf: async (name: string) =>
      (await queue.database.read(
        sql`select * from ${rowsOf} where name = ${name} order by task_id`,
      ))!,
  };
}

/** A schedule whose tasks have its own name. */
export const sendMail = (
  id = "mail",
  more: { missed?: "skip" | "once" | "all"; input?: unknown } = {},
) => schedule(id, { name: id, everyMs, input: { to: "ada" }, ...more });
