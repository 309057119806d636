import { describe, expect, test } from "vitest";
import { systemClock } from "../base/clock.ts";
import { silentLogger } from "../base/log.ts";
import type { Stats } from "../queue/client.ts";
import { createMetrics } from "./metrics.ts";

const counts = { pending: 1, claimed: 0, completed: 2, failed: 0, cancelled: 0 };
const statsOf = (names: string[]): Stats => ({
  byStatus: counts,
  byName: Object.fromEntries(names.map((name) => [name, counts])),
});

describe("metrics", () => {
  test("count what a pod tells", async () => {
    const metrics = createMetrics({
      pod: () => ({ podId: "p1", leader: "p1", running: 3 }),
      slots: 10,
    });
    metrics.observe({ type: "claimed", tasks: 4, tookMs: 2 });
    metrics.observe({ type: "claim_failed", code: "store_busy" });
    metrics.observe({ type: "ended", name: "mail", outcome: "completed", tookMs: 20 });
    metrics.observe({ type: "ended", name: "mail", outcome: "retry", tookMs: 2_000 });
    metrics.observe({ type: "recovered", tasks: 2 });
    metrics.observe({ type: "beat", lagMs: 40 });
    const text = await scrape(metrics, async () => statsOf(["mail"]));
    for (const line of [
      "flotilla_tasks_claimed_total 4",
      "flotilla_claim_duration_seconds_count 1",
      `flotilla_claim_failures_total{code="store_busy"} 1`,
      `flotilla_tasks_ended_total{name="mail",outcome="completed"} 1`,
      `flotilla_tasks_ended_total{name="mail",outcome="retry"} 1`,
      `flotilla_task_duration_seconds_bucket{le="0.025",name="mail"} 1`,
      `flotilla_task_duration_seconds_sum{name="mail"} 2.02`,
      "flotilla_tasks_recovered_total 2",
      `flotilla_heartbeat_lag_seconds_bucket{le="0.05"} 1`,
      "flotilla_tasks_running 3",
      "flotilla_slots 10",
      "flotilla_is_leader 1",
      `flotilla_tasks{name="mail",status="pending"} 1`,
      `flotilla_tasks{name="mail",status="completed"} 2`,
    ]) {
      expect(text.split("\n")).toContain(line);
    }
  });

  test("are there without the count when the store is away", async () => {
    const text = await scrape(createMetrics(), () => Promise.reject(new Error("away")));
    expect(text).toContain("flotilla_is_leader 0");
    expect(text).not.toContain("flotilla_tasks{");
  });

  test("count the store once for scrapes that come close together", async () => {
    let asked = 0;
    let nowMs = 0;
    const metrics = createMetrics();
    const stats = async () => {
      asked++;
      // A count of a large table, which takes half a second.
      nowMs += 500;
      return statsOf(["mail"]);
    };
    const clock = { ...systemClock, monotonic: () => nowMs };
    const once = () => metrics.collect({ stats, clock, log: silentLogger });
    await Promise.all([once(), once()]);
    nowMs += 9_999;
    await once();
    expect(asked).toBe(1);
    nowMs += 1;
    await once();
    expect(asked).toBe(2);
  });

  test("keep the number of series bounded, whatever names callers invent", async () => {
    const names = Array.from({ length: 5_000 }, (_, at) => `name-${at}`);
    const text = await scrape(createMetrics(), async () => statsOf(names));
    const series = text.split("\n").filter((line) => line.startsWith("flotilla_tasks{"));
    expect(series).toHaveLength(101 * 5);
    expect(series).toContain(`flotilla_tasks{name="(other)",status="pending"} 4900`);
  });
});

function scrape(metrics: ReturnType<typeof createMetrics>, stats: () => Promise<Stats>) {
  return metrics.collect({ stats, clock: systemClock, log: silentLogger });
}
