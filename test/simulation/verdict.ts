/**
 * Judges a run when it is over: what clients were told against what the store holds, and what the
 * store holds against what handlers did.
 */
import { sql, table } from "../../src/store/sql.ts";
import type { Checker } from "./checker.ts";
import { judgeRequests } from "./requests.ts";
import { judgeSchedules, scheduledOp } from "./schedules.ts";
import type { Clients, Payload } from "./workload.ts";
import type { World } from "./world.ts";

export async function judgeEnd(world: World, checker: Checker, clients: Clients): Promise<void> {
  const { violate } = world;
  const rows = await world.store.database.read(sql`select * from ${table("task")}`);
  const asked = rows
    .map((row) => ({ op: (JSON.parse(row["payload"]) as Payload).op, row }))
    .filter(({ op }) => op !== scheduledOp);
  judgeRequests(world, clients.history, asked);

  await judgeSchedules(world, rows);
  await checker.redrives.judgeEnd();
  await checker.bulks.judgeEnd();

  for (const row of rows) {
    const taskId = row["task_id"] as string;
    const what = `${row["name"]} ${taskId.slice(-6)}`;
    const token = Number(row["claim_token"]);
    const runs = checker.runs.filter((run) => run.taskId === taskId);
    if (row["status"] === "claimed") {
      const holds = runs.some((run) => run.token === token && run.active);
      const invariant = holds ? "T7" : "T12";
      violate(invariant, `${what} is claimed by ${row["claimed_by"]} for ever`);
    } else if (row["status"] === "pending") violate("T7", `${what} waits for ever`);
    else if (row["status"] === "completed") {
      const winner = runs.find((run) => run.token === token);
      if (winner?.returned !== row["result"]) {
        violate("result", `${what} holds ${row["result"]}, its run returned ${winner?.returned}`);
      }
      checker.steps.judgeResult(taskId, row["result"]);
    }
    if (row["name"] === "stuck" && row["status"] === "completed")
      violate("T7", `${what} completed`);
  }

  const counted = await world.store.database.read(
    sql`select count(*) as tasks, sum(status in ('pending', 'claimed')) as open,
      sum(status in ('completed', 'failed', 'cancelled')) as ended from ${table("task")}`,
  );
  const { tasks, open, ended } = counted[0]!;
  if (Number(tasks) !== checker.tasks.size || Number(open ?? 0) + Number(ended ?? 0) !== tasks) {
    violate("T10", `${checker.tasks.size} were stored, ${tasks} are there`);
  }
}
