import { createAudit } from "../../audit/audit.ts";
import { createDeadLetters } from "../../dead-letters/dead-letters.ts";
import { createRuns } from "../../flows/runs.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { emptyTables } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { now, rows, sql, table } from "../../store/sql.ts";
import { openTasks } from "../../tasks/contract/harness.ts";
import type { TaskStatus } from "../../tasks/rows.ts";
import { createBulks } from "../bulks.ts";
import { createBulkLeader } from "../leader.ts";

export type BulkHarness = Awaited<ReturnType<typeof openBulks>>;

const tasks = table("task");
// Long enough ago that no caller is about to read how they ended.
const endedMs = 3_600_000;

/** A queue with tasks in any state, and as many leaders as are wanted. */
export async function openBulks(kind: StoreKind) {
  const queue = await openTasks(kind);
  const { clock, random, ids, database } = queue;
  await emptyTables(queue.store, ["bulk", "audit"]);
  const parts = { database, clock, random, ids };

  return {
    queue,
    bulk: createBulks(parts),
    runs: createRuns(queue, parts),
    letters: createDeadLetters(parts),
    audit: createAudit(parts),

    lead: (through: Database = database, leads?: () => boolean) =>
      createBulkLeader({ database: through, clock, random, ...(leads && { leads }) }),

    /** Stores tasks in a state, as they would be an hour after. Their ids are in order. */
    async stored(name: string, count: number, status: TaskStatus = "pending", tenant = "default") {
      const error = JSON.stringify({ code: "handler_failed", message: "boom" });
      const taskIds = Array.from({ length: count }, () => ids.next());
      const fresh = rows(
        { task_id: "text" },
        taskIds.map((taskId) => [taskId]),
      );
      await database.write([
        sql`insert into ${tasks} (task_id, name, tenant, status, claim_token, error, created_at, last_update)
          select task_id, ${name}, ${tenant}, ${status}, 1, ${status === "failed" ? error : null},
            ${now} - ${endedMs}, ${now} - ${endedMs}
          from ${fresh} fresh where true`,
      ]);
      return taskIds;
    },

    /** Stores runs of a flow that no pod can read. */
    async setAside(name: string, count: number, version = 1) {
      const taskIds = Array.from({ length: count }, () => ids.next());
      for (const taskId of taskIds) {
        await database.write([
          sql`insert into ${tasks} (task_id, name, flow_version, cursor, parked, set_aside)
            values (${taskId}, ${name}, ${version}, 'charge', 6, '{"reason":"code"}')`,
        ]);
      }
      return taskIds;
    },

    /** How many of these tasks are in each status; `gone` without a row. */
    async statuses(taskIds: readonly string[]): Promise<Record<string, number>> {
      const counts: Record<string, number> = {};
      const found = await database.read(sql`select task_id, status from ${tasks}`);
      const byId = new Map(found.map((row) => [row["task_id"] as string, row["status"] as string]));
      for (const taskId of taskIds) {
        const status = byId.get(taskId) ?? "gone";
        counts[status] = (counts[status] ?? 0) + 1;
      }
      return counts;
    },

    /** How often an event of this type names the bulk, for each task that has one. */
    async noted(type: string, bulkId: string): Promise<number[]> {
      const found = await database.read(
        sql`select task_id, count(*) as times from ${table("task_event")}
          where type = ${type} and detail like ${`%"request":"${bulkId}"%`}
          group by task_id order by task_id`,
      );
      return found.map((row) => Number(row["times"]));
    },

    async close(): Promise<void> {
      await queue.close();
    },
  };
}
