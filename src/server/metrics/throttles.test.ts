import { describe, expect, test } from "vitest";
import { systemClock } from "../../base/clock.ts";
import { silentLogger } from "../../base/log.ts";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { seededRandom } from "../../base/random.ts";
import { declareThrottle } from "../../throttles/declaration.ts";
import { noCounts } from "../../throttles/learning/sample.ts";
import { resolveControllerOptions } from "../../throttles/settings.ts";
import type { ThrottleView } from "../../throttles/shares/admin.ts";
import { createThrottleRegistry } from "../../throttles/registry.ts";
import { parseExposition } from "../../../test/metrics/exposition.ts";
import { createMetrics } from "./metrics.ts";
import type { ScrapeParts } from "./instruments.ts";

const api = declareThrottle("api", { mode: "local", initial: 2 });

/** Metrics of a pod whose throttles are real, on a clock in hand. */
function harness() {
  const clock = movableClock();
  const throttles = createThrottleRegistry({ clock, random: seededRandom(1) });
  const pod = {
    podId: "p1",
    leader: "p1",
    running: 0,
    capacity: { holds: 1, reasons: [] },
    throttles: { here: () => throttles.all().map((limiter) => limiter.snapshot()) },
  };
  const metrics = createMetrics({ pod: () => pod });
  const scrape = (parts: Partial<ScrapeParts> = {}) =>
    metrics.collect({
      depth: async () => new Map(),
      clock: systemClock,
      log: silentLogger,
      ...parts,
    });
  return { clock, throttles, scrape };
}

function viewOf(name: string, key: string): ThrottleView {
  return {
    name,
    key,
    bound: 20,
    epoch: 3,
    settings: resolveControllerOptions(),
    breaker: "half_open",
    holdMs: 0,
    inFlight: 15,
    waiting: 3,
    callsWaiting: 0,
    outcomes: { ...noCounts, success: 1_990, throttled: 10 },
    pods: [],
    lastUpdateMs: 0,
  };
}

describe("metrics of throttles", () => {
  test("show what this pod may do, does and has done", async () => {
    const { clock, throttles, scrape } = harness();
    const limiter = throttles.of(api, "gpt");
    for (const latencyMs of [8, 100, 3_000]) {
      const permit = await limiter.acquire();
      await clock.advance(latencyMs);
      permit.release("success");
    }
    (await limiter.acquire()).release("ignored");
    await limiter.acquire();
    await limiter.acquire();
    void limiter.acquire().catch(() => {});
    const text = await scrape();
    for (const line of [
      `flotilla_throttle_limit{throttle="api",key="gpt"} 2`,
      `flotilla_throttle_in_flight{throttle="api",key="gpt"} 2`,
      `flotilla_throttle_waiting{throttle="api",key="gpt"} 1`,
      `flotilla_throttle_braked{throttle="api",key="gpt"} 0`,
      `flotilla_throttle_calls_total{throttle="api",key="gpt",outcome="success"} 3`,
      `flotilla_throttle_calls_total{throttle="api",key="gpt",outcome="ignored"} 1`,
      `flotilla_throttle_breaker{throttle="api",key="gpt",state="closed"} 1`,
      `flotilla_throttle_breaker{throttle="api",key="gpt",state="open"} 0`,
      `flotilla_throttle_call_duration_seconds_bucket{le="0.008",throttle="api",key="gpt"} 1`,
      `flotilla_throttle_call_duration_seconds_bucket{le="0.064",throttle="api",key="gpt"} 1`,
      `flotilla_throttle_call_duration_seconds_bucket{le="0.128",throttle="api",key="gpt"} 2`,
      `flotilla_throttle_call_duration_seconds_bucket{le="4.096",throttle="api",key="gpt"} 3`,
      `flotilla_throttle_call_duration_seconds_bucket{le="+Inf",throttle="api",key="gpt"} 3`,
      `flotilla_throttle_call_duration_seconds_sum{throttle="api",key="gpt"} 3.108`,
      `flotilla_throttle_call_duration_seconds_count{throttle="api",key="gpt"} 3`,
    ]) {
      expect(text.split("\n")).toContain(line);
    }
    parseExposition(text);
    throttles.close();
  });

  test("show what all pods have and do together, as the store knows it", async () => {
    const { scrape } = harness();
    const text = await scrape({
      throttles: async () => [
        { ...viewOf("api", ""), pinned: 20, p95Ms: 812 },
        viewOf("mail", ""),
        { ...viewOf("sms", ""), settings: resolveControllerOptions({ pinned: 20 }) },
      ],
    });
    for (const line of [
      `flotilla_fleet_throttle_limit{throttle="api",key=""} 20`,
      `flotilla_fleet_throttle_in_flight{throttle="api",key=""} 15`,
      `flotilla_fleet_throttle_waiting{throttle="api",key=""} 3`,
      `flotilla_fleet_throttle_calls_total{throttle="api",key="",outcome="throttled"} 10`,
      `flotilla_fleet_throttle_breaker{throttle="api",key="",state="half_open"} 1`,
      `flotilla_fleet_throttle_p95_seconds{throttle="api",key=""} 0.812`,
      `flotilla_fleet_throttle_pinned{throttle="api",key=""} 1`,
      `flotilla_fleet_throttle_pinned{throttle="mail",key=""} 0`,
      `flotilla_fleet_throttle_pinned{throttle="sms",key=""} 1`,
    ]) {
      expect(text.split("\n")).toContain(line);
    }
  });

  test("are there without the fleet's when the store is away", async () => {
    const { throttles, scrape } = harness();
    throttles.of(api);
    const text = await scrape({ throttles: () => Promise.reject(new Error("away")) });
    expect(text).toContain(`flotilla_throttle_limit{throttle="api",key=""} 2`);
    expect(text).not.toContain("flotilla_fleet_throttle_limit{");
  });

  test("keep the number of series bounded, whatever keys callers invent", async () => {
    const { throttles, scrape } = harness();
    for (let nth = 0; nth < 150; nth++) {
      (await throttles.of(api, `key-${nth}`).acquire()).release("success");
    }
    const views = Array.from({ length: 150 }, (_, nth) => viewOf("api", `key-${nth}`));
    const text = await scrape({ throttles: async () => views });
    const seriesOf = (start: string) => text.split("\n").filter((line) => line.startsWith(start));
    expect(seriesOf("flotilla_throttle_limit{")).toHaveLength(101);
    expect(seriesOf("flotilla_fleet_throttle_limit{")).toHaveLength(101);
    expect(text).toContain(
      `flotilla_throttle_calls_total{throttle="other",key="other",outcome="success"} 50`,
    );
    expect(text).toContain(
      `flotilla_throttle_call_duration_seconds_count{throttle="other",key="other"} 50`,
    );
    parseExposition(text);
  });
});
