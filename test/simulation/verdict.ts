/**
 * Judges a run when it is over: what clients were told against what the store holds, and what the
 * store holds against what handlers did.
 */
import { sql, table } from "../../src/store/sql.ts";
import type { Checker } from "./checker.ts";
import { judgeSchedules, scheduledOp } from "./schedules.ts";
import type { Clients, Payload, Request } from "./workload.ts";
import type { World } from "./world.ts";

export async function judgeEnd(world: World, checker: Checker, clients: Clients): Promise<void> {
  const { violate } = world;
  const rows = await world.store.database.read(sql`select * from ${table("step_tracker")}`);
  const byId = new Map(rows.map((row) => [row["task_id"] as string, row]));
  const byOp = new Map<number, string[]>();
  for (const row of rows) {
    const { op } = JSON.parse(row["payload"]) as Payload;
    if (op !== scheduledOp) byOp.set(op, [...(byOp.get(op) ?? []), row["task_id"]]);
  }

  const holders = new Map<string, string>();
  for (const request of clients.history) {
    const { op, name, key, outcome } = request;
    const made = byOp.get(op) ?? [];
    const what = `request ${op} (${name}${key === undefined ? "" : `, ${key}`})`;
    if (made.length > 1) violate("T1", `${what} made ${made.length} tasks`);
    switch (outcome.type) {
      case "ok": {
        const row = byId.get(outcome.taskId);
        if (row?.["name"] !== name) violate("T1", `${what} was stored for certain and isn't there`);
        if (outcome.created !== (made[0] === outcome.taskId)) {
          violate("T1", `${what} was told created: ${outcome.created}`);
        }
        if (key === undefined) break;
        const holder = holders.get(`${name} ${key}`) ?? outcome.taskId;
        holders.set(`${name} ${key}`, holder);
        if (holder !== outcome.taskId) violate("T1", `${what} has two tasks`);
        break;
      }
      case "failed":
        if (made.length > 0) violate("T1", `${what} failed for certain and is there`);
        break;
      case "open":
        violate("T7", `${what} was never answered`);
        break;
      case "unknown":
        break;
    }
  }
  const known = new Set(clients.history.map((request: Request) => request.op));
  for (const op of byOp.keys()) if (!known.has(op)) violate("T1", `nobody asked for ${op}`);

  await judgeSchedules(world, rows);
  await checker.redrives.judgeEnd();

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
    }
    if (row["name"] === "stuck" && row["status"] === "completed")
      violate("T7", `${what} completed`);
  }

  const counted = await world.store.database.read(
    sql`select count(*) as tasks, sum(status in ('pending', 'claimed')) as open,
      sum(status in ('completed', 'failed', 'cancelled')) as ended from ${table("step_tracker")}`,
  );
  const { tasks, open, ended } = counted[0]!;
  if (Number(tasks) !== checker.tasks.size || Number(open ?? 0) + Number(ended ?? 0) !== tasks) {
    violate("T10", `${checker.tasks.size} were stored, ${tasks} are there`);
  }
}
