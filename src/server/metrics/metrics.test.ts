import { describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { silentLogger } from "../../base/log.ts";
import type { Depth } from "../../tasks/inspect/depth.ts";
import { parseExposition } from "../../../test/metrics/exposition.ts";
import { createMetrics } from "./metrics.ts";

const counts = {
  ready: 1,
  delayed: 2,
  waiting: 6,
  blocked: 0,
  paused: false,
  alone: 3,
  running: 4,
  failed: 5,
  oldestMs: 1_500,
};
const depthOf = (names: string[]): Depth => new Map(names.map((name) => [name, counts]));

describe("metrics", () => {
  test("count what a pod and its store report", async () => {
    let nowMs = 10_000;
    const clock = { ...systemClock, monotonic: () => nowMs };
    const metrics = createMetrics({
      pod: () => ({
        podId: "p1",
        leader: "p1",
        running: 3,
        capacity: { holds: 3, reasons: [{ code: "memory", text: "memory 92 %" }] },
      }),
      slots: 10,
      names: ["mail", "idle"],
      clock,
    });
    metrics.observe({ type: "claimed", tasks: 4, tookMs: 2 });
    metrics.observe({ type: "claim_failed", code: "store_busy", waitMs: 50 });
    metrics.observe({ type: "ended", name: "mail", outcome: "completed", tookMs: 20 });
    metrics.observe({ type: "ended", name: "mail", outcome: "retry", tookMs: 2_000 });
    metrics.observe({ type: "contended", cause: "deadlock", waitMs: 4 });
    metrics.observe({ type: "contended", cause: "busy", waitMs: 30 });
    metrics.observe({ type: "store_error", code: "store_busy" });
    metrics.observe({ type: "store_error", code: "unknown_outcome" });
    metrics.observe({ type: "resent", waitMs: 200 });
    metrics.observe({ type: "recovered", tasks: 2, silencesMs: [5_500, 6_500] });
    metrics.observe({ type: "recovered", tasks: 1, silencesMs: [] });
    metrics.observe({ type: "beat", atMs: 0, lagMs: 40 });
    metrics.observe({ type: "beat_failed" });
    metrics.observe({ type: "leading", podId: "p0" });
    metrics.observe({ type: "leading", podId: "p1", silentMs: 5_200 });
    nowMs += 3_000;
    const text = await scrape(metrics, async () => depthOf(["mail"]));
    for (const line of [
      "flotilla_tasks_claimed_total 4",
      "flotilla_capacity 3",
      `flotilla_held_back{reason="memory"} 1`,
      `flotilla_held_back{reason="full"} 0`,
      "flotilla_claim_duration_seconds_count 1",
      `flotilla_claim_failures_total{code="store_busy"} 1`,
      `flotilla_attempts_total{name="mail",outcome="completed"} 1`,
      `flotilla_attempts_total{name="mail",outcome="retry"} 1`,
      `flotilla_task_duration_seconds_bucket{le="0.025",name="mail"} 1`,
      `flotilla_task_duration_seconds_sum{name="mail"} 2.02`,
      `flotilla_contention_total{cause="deadlock"} 1`,
      `flotilla_contention_total{cause="serialization"} 0`,
      // One that waited, and one that gave up waiting.
      `flotilla_contention_total{cause="busy"} 2`,
      `flotilla_backoff_wait_seconds_sum{what="claim"} 0.05`,
      `flotilla_backoff_wait_seconds_sum{what="store"} 0.034`,
      `flotilla_backoff_wait_seconds_count{what="write"} 1`,
      `flotilla_store_errors_total{code="unknown_outcome"} 1`,
      "flotilla_tasks_recovered_total 3",
      "flotilla_recovery_latency_seconds_sum 12",
      "flotilla_recovery_latency_seconds_count 2",
      "flotilla_leader_detection_seconds_sum 5.2",
      "flotilla_leader_detection_seconds_count 1",
      `flotilla_heartbeat_lag_seconds_bucket{le="0.05"} 1`,
      "flotilla_heartbeat_failures_total 1",
      "flotilla_heartbeat_age_seconds 3",
      "flotilla_tasks_running 3",
      "flotilla_slots 10",
      "flotilla_is_leader 1",
      `flotilla_queue_depth{name="mail",state="ready"} 1`,
      `flotilla_queue_depth{name="mail",state="failed"} 5`,
      `flotilla_queue_depth{name="idle",state="ready"} 0`,
      `flotilla_queue_oldest_seconds{name="mail"} 1.5`,
      `flotilla_queue_oldest_seconds{name="idle"} 0`,
    ]) {
      expect(text.split("\n")).toContain(line);
    }
  });

  test("follow the rules of the text format, with whatever names there are", async () => {
    const names = ["mail", 'a"b', "back\\slash", "line\nbreak"];
    const metrics = createMetrics({ names });
    for (const name of names) {
      metrics.observe({ type: "ended", name, outcome: "completed", tookMs: 20 });
      metrics.observe({ type: "step", name, outcome: "stored" });
    }
    const families = parseExposition(await scrape(metrics, async () => depthOf(names)));
    expect([...families.keys()].filter((name) => !name.startsWith("flotilla_"))).toEqual([]);
    expect(families.size).toBe(71);
  });

  test("show how far the database is behind logs that aren't in it, and nothing without such logs", async () => {
    const none = await scrape(createMetrics(), async () => new Map());
    expect(none).not.toMatch(/session_(?:unarchived|archive|streams|trims|aside)/);
    const state = {
      isAway: true,
      unarchivedEntries: 7,
      unarchivedBytes: 4_096,
      lagMs: 1_500,
      backlogs: [],
      lost: 0,
      changedStreams: 1,
    };
    let trims = 2;
    const pod = { podId: "p1", leader: "p1", running: 0, capacity: { holds: 1, reasons: [] } };
    const metrics = createMetrics({
      pod: () => ({ ...pod, archiveState: () => ({ ...state, trims, aside: 1, leftOut: 0 }) }),
    });
    metrics.observe({ type: "record_unknown" });
    metrics.observe({ type: "record_resent" });
    metrics.observe({ type: "record_fenced" });
    metrics.observe({ type: "log_taken", tookMs: 300 });
    await scrape(metrics, async () => new Map());
    trims = 5;
    const lines = (await scrape(metrics, async () => new Map())).split("\n");
    for (const line of [
      "flotilla_session_unarchived_entries 7",
      "flotilla_session_unarchived_bytes 4096",
      "flotilla_session_archive_lag_seconds 1.5",
      "flotilla_session_archive_away 1",
      "flotilla_session_streams_changed 1",
      "flotilla_session_trims_total 5",
      "flotilla_session_aside_total 1",
      "flotilla_session_records_unknown_total 1",
      "flotilla_session_records_resent_total 1",
      "flotilla_session_records_fenced_total 1",
      "flotilla_session_take_seconds_count 1",
      "flotilla_session_take_seconds_sum 0.3",
    ]) {
      expect(lines).toContain(line);
    }
  });

  test("count the tokens that steps used, and those that the journal has saved", async () => {
    const metrics = createMetrics();
    const used = { model: "small", input: 9, output: 3, cached: 1 };
    metrics.observe({ type: "tokens", saved: false, ...used });
    for (let at = 0; at < 2; at++) metrics.observe({ type: "tokens", saved: true, ...used });
    const turn = { type: "turn_ended", agent: "helper", outcome: "completed" } as const;
    metrics.observe({ ...turn, durationMs: 1, chunks: 1, tokens: [], savedTokens: [used] });
    const lines = (await scrape(metrics, async () => new Map())).split("\n");
    expect(lines.filter((line) => line.startsWith("flotilla_tokens_"))).toEqual([
      `flotilla_tokens_total{model="small",kind="input"} 9`,
      `flotilla_tokens_total{model="small",kind="output"} 3`,
      `flotilla_tokens_total{model="small",kind="cached"} 1`,
      `flotilla_tokens_saved_total{model="small",kind="input"} 27`,
      `flotilla_tokens_saved_total{model="small",kind="output"} 9`,
      `flotilla_tokens_saved_total{model="small",kind="cached"} 3`,
    ]);
  });

  test("count the tokens of turns by model, with a bounded number of models", async () => {
    const metrics = createMetrics();
    const ended = { type: "turn_ended", agent: "helper", outcome: "completed" } as const;
    const observe = (model: string) => {
      const tokens = [{ model, input: 100, output: 7, cached: 40 }];
      metrics.observe({ ...ended, durationMs: 1, chunks: 1, tokens, savedTokens: [] });
    };
    for (const model of ["small", "small", ""]) observe(model);
    for (let at = 0; at < 1_000; at++) observe(`invented-${at}`);
    observe("small");
    const text = await scrape(metrics, async () => new Map());
    const lines = text.split("\n").filter((line) => line.startsWith("flotilla_tokens_total{"));
    for (const line of [
      `flotilla_tokens_total{model="small",kind="input"} 300`,
      `flotilla_tokens_total{model="small",kind="output"} 21`,
      `flotilla_tokens_total{model="small",kind="cached"} 120`,
      `flotilla_tokens_total{model="unknown",kind="input"} 100`,
    ]) {
      expect(lines).toContain(line);
    }
    expect(lines.length).toBeLessThanOrEqual(101 * 3);
    const sum = lines.filter((line) => line.includes(`kind="input"`));
    expect(sum.reduce((all, line) => all + Number(line.split(" ").at(-1)), 0)).toBe(100_400);
  });

  test("are there without the depth when the store is away", async () => {
    const text = await scrape(createMetrics(), () => Promise.reject(new Error("away")));
    expect(text).toContain("flotilla_is_leader 0");
    expect(text).not.toContain("flotilla_queue_depth{");
    parseExposition(text);
  });

  test("read the store once for scrapes that come close together", async () => {
    let asked = 0;
    let nowMs = 0;
    const metrics = createMetrics();
    const depth = async () => {
      asked++;
      // A slow store, which takes half a second.
      nowMs += 500;
      return depthOf(["mail"]);
    };
    const clock = { ...systemClock, monotonic: () => nowMs };
    const once = () => metrics.collect({ depth, clock, log: silentLogger });
    await Promise.all([once(), once()]);
    nowMs += 9_999;
    await once();
    expect(asked).toBe(1);
    nowMs += 1;
    await once();
    expect(asked).toBe(2);
  });

  test("keep the number of series bounded, whatever names callers invent", async () => {
    const invented = Array.from({ length: 5_000 }, (_, at) => `name-${at}`);
    const metrics = createMetrics({ names: ["mail"] });
    const text = await scrape(metrics, async () => depthOf(["mail", ...invented]));
    const series = text.split("\n").filter((line) => line.startsWith("flotilla_queue_depth{"));
    expect(series).toHaveLength(2 * 7);
    expect(series).toContain(`flotilla_queue_depth{name="other",state="ready"} 5000`);
    expect(text).toContain(`flotilla_queue_oldest_seconds{name="other"} 1.5`);
  });
});

function scrape(metrics: ReturnType<typeof createMetrics>, depth: () => Promise<Depth>) {
  return metrics.collect({ depth, clock: systemClock, log: silentLogger });
}
