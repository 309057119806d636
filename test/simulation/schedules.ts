/**
 * Schedules that every pod brings, and what became of their times. One fires every few seconds, so
 * that leaders meet over it; the other has times that only a stepped clock reaches, many at once, of
 * which none may be lost.
 */
import type { Row } from "../../src/store/database.ts";
import { schedule } from "../../src/schedules/schedule.ts";
import { sql, table } from "../../src/store/sql.ts";
import type { Payload } from "./workload.ts";
import type { World } from "./world.ts";

/** The request of tasks that no client has asked for. */
export const scheduledOp = -1;

const input: Payload = { op: scheduledOp, workMs: 20, times: 0 };
const everyMs = { tick: 6_000, tock: 300_000 };

export const schedules = [
  schedule("tick", { name: "quick", everyMs: everyMs.tick, input, missed: "once" }),
  schedule("tock", { name: "quick", everyMs: everyMs.tock, input, missed: "all" }),
];

export async function judgeSchedules(world: World, tasks: readonly Row[]): Promise<void> {
  const { violate } = world;
  const fired = new Map<string, number[]>();
  for (const row of tasks) {
    const [kind, scheduleId, iso] = String(row["unique_key"]).split("/");
    if (kind !== "schedule") continue;
    fired.set(scheduleId!, [...(fired.get(scheduleId!) ?? []), Date.parse(iso!)]);
  }
  const stored = await world.store.database.read(sql`select * from ${table("schedule")}`);
  for (const row of stored) {
    const scheduleId = row["schedule_id"] as keyof typeof everyMs;
    const times = fired.get(scheduleId) ?? [];
    const made = new Set(times);
    if (made.size < times.length) violate("T13", `${scheduleId} has two tasks for one time`);
    if (row["revision"] !== 1) violate("T13", `${scheduleId} was changed though nobody said so`);
    const nextAtMs = Number(row["next_at"]);
    if (nextAtMs > 0 && times.some((atMs) => atMs >= nextAtMs)) {
      violate("T13", `${scheduleId} was fired ahead of its next time`);
    }
    if (times.length > 1) world.count(`schedule: ${scheduleId}, several`);
    if (row["missed"] !== "all") continue;
    const step = everyMs[scheduleId];
    for (let atMs = nextAtMs - step; atMs > row["created_at"]; atMs -= step) {
      if (!made.has(atMs)) violate("T13", `${scheduleId} lost ${new Date(atMs).toISOString()}`);
    }
  }
}
