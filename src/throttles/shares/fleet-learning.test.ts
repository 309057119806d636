import { describe, expect, test } from "vitest";
import { addCounts, emptySample, noCounts, type Sample } from "../learning/sample.ts";
import { resolveControllerOptions } from "../settings.ts";
import { countedPermits, type SilentPods } from "./silence.ts";
import {
  learnFromReports,
  type LearnedRow,
  type Report,
  type LearnedState,
  toThrottleStats,
} from "./fleet-learning.ts";
import { addToTotals, noTotals, sampleBetween, type Totals } from "./totals.ts";

const sampleOf = (success: number, more: Partial<Sample> = {}): Sample => ({
  ...emptySample(1),
  counts: { ...noCounts, success },
  spanMs: 1_000,
  acceptedMs: success * 100,
  ...more,
});
const row: LearnedRow = {
  name: "api",
  key: "",
  rev: 1,
  bound: 2,
  epoch: 1,
  settings: resolveControllerOptions({ initial: 2 }),
  stored: undefined,
  stats: toThrottleStats("{}"),
  shares: {},
};
const report = (podId: string, seq: number, totals: Totals): Report => ({ podId, seq, totals });

/** Learns, and gives the row as it would be read next. */
const next = (
  before: LearnedRow,
  reports: readonly Report[],
  known: readonly Report[] = [],
  silentMs: (podId: string) => number = () => 0,
): LearnedRow & { holdMs: number; silent?: SilentPods | undefined } => {
  const recall = (podId: string, seq: number) =>
    known.find((each) => each.podId === podId && each.seq === seq)?.totals;
  const learned = learnFromReports(before, reports, { elapsedMs: 1_000, recall, silentMs });
  return {
    ...before,
    bound: learned.bound,
    epoch: learned.epoch,
    stored: JSON.parse(learned.state) as LearnedState,
    stats: toThrottleStats(learned.stats),
    silent: undefined,
    ...(JSON.parse(learned.constraints) as { holdMs: number; silent?: SilentPods }),
  };
};

describe("what a leader learns", () => {
  test("from a pod's first report is all of it, and from later ones what has come since", () => {
    const first = report("a", 1, addToTotals(noTotals, sampleOf(3)));
    const second = report("a", 4, addToTotals(first.totals, sampleOf(5)));
    const one = next(row, [first]);
    expect(one.stats.outcomes.success).toBe(3);
    expect(next(one, [second], [first]).stats.outcomes.success).toBe(8);
  });

  test("from a report that it has counted is nothing more, neither calls nor how long to stay away", () => {
    const told = report("a", 1, addToTotals(noTotals, sampleOf(3, { retryAfterMs: 5_000 })));
    const one = next(row, [told]);
    const two = next(one, [told], [told]);
    expect(two.stats.outcomes.success).toBe(3);
    expect(one.holdMs).toBe(5_000);
    expect(two.holdMs).toBe(4_000);
  });

  test("from reports that another has counted to a point unknown here begins with the next", () => {
    const totals = addToTotals(noTotals, sampleOf(30));
    const counted = { ...row, stored: next(row, [report("a", 1, noTotals)]).stored };
    const seventh = report("a", 7, totals);
    const one = next(counted, [seventh]);
    expect(one.stats.outcomes.success).toBe(0);
    const eighth = report("a", 8, addToTotals(totals, sampleOf(2)));
    expect(next(one, [eighth], [seventh]).stats.outcomes.success).toBe(2);
  });

  test("takes a limit for used that two pods use up together, though they never report at the same time", () => {
    const told: Report[] = [];
    const say = (podId: string): Report => {
      const last = told.findLast((each) => each.podId === podId);
      const totals = addToTotals(last?.totals ?? noTotals, sampleOf(20, { peak: 1 }));
      const said = report(podId, (last?.seq ?? 0) + 1, totals);
      told.push(said);
      return said;
    };
    const [a, b] = [say("a"), say("b")];
    const one = next(row, [a], told);
    expect(one.bound).toBe(2);
    expect(next(one, [a, b], told).bound).toBeGreaterThan(2);
  });

  test("keeps the bound while the breaker is open, so that shares needn't move", () => {
    const failed = sampleOf(0, { counts: { ...noCounts, server_error: 50 } });
    const one = next(row, [report("a", 1, addToTotals(noTotals, failed))]);
    expect(one.stored!.controller.breaker.state).toBe("open");
    expect(one.bound).toBe(row.bound);
  });

  test("never goes back to an epoch before the row's", () => {
    const one = next({ ...row, epoch: 9 }, [report("a", 1, addToTotals(noTotals, sampleOf(3)))]);
    expect(one.epoch).toBeGreaterThanOrEqual(9);
  });
});

describe("totals", () => {
  test("separate calls of the present epoch from those before it, over any number of reports", () => {
    const inFirst = addToTotals(noTotals, sampleOf(4));
    const inSecond = addToTotals(
      inFirst,
      sampleOf(2, { epoch: 2, earlier: { ...noCounts, throttled: 3 } }),
    );
    const later = addToTotals(inSecond, sampleOf(1, { epoch: 2 }));
    expect(sampleBetween(inFirst, later)).toMatchObject({
      epoch: 2,
      counts: { success: 3 },
      earlier: { success: 0, throttled: 3 },
      spanMs: 2_000,
    });
    const all = sampleBetween(noTotals, later);
    expect(addCounts(all.counts, all.earlier)).toMatchObject({ success: 7, throttled: 3 });
  });

  test("add durations and what was used", () => {
    const one = addToTotals(noTotals, sampleOf(1, { latencies: [0, 2], used: 5, limited: true }));
    const two = addToTotals(one, sampleOf(1, { latencies: [1, 0, 4], used: 7 }));
    expect(sampleBetween(one, two)).toMatchObject({
      latencies: [1, 0, 4],
      used: 7,
      limited: false,
      acceptedMs: 100,
    });
    expect(sampleBetween(noTotals, two)).toMatchObject({ latencies: [1, 2, 4], limited: true });
  });
});

describe("pods that hold a share and say nothing", () => {
  const entry = { share: 5, renewal: 7, leaseMs: 60_000, longestMs: 10_000 };
  const held: LearnedRow = {
    ...row,
    bound: 20,
    settings: resolveControllerOptions({ initial: 20, max: 100 }),
    shares: { a: { ...entry, share: 15 }, gone: entry },
  };
  const silentFor = (durationMs: number) => (podId: string) => (podId === "gone" ? durationMs : 0);
  const reported = (counts: Partial<Sample["counts"]>) => [
    report("a", 1, addToTotals(noTotals, sampleOf(0, { counts: { ...noCounts, ...counts } }))),
  ];

  test("are made up for once their calls have probably ended", () => {
    expect(next(held, reported({ success: 9 }), [], silentFor(14_999)).silent).toBeUndefined();
    const after = next(held, reported({ success: 9 }), [], silentFor(15_000));
    expect(after).toMatchObject({ bound: 20, silent: { gone: 7 } });
  });

  test("are counted again when they report, and when their entry is gone", () => {
    const raised = next(held, reported({ success: 9 }), [], silentFor(15_000));
    expect(next(raised, [], [], silentFor(0)).silent).toBeUndefined();
    const left = { ...raised, shares: { a: entry } };
    expect(next(left, [], [], silentFor(16_000)).silent).toBeUndefined();
  });

  test("are counted again where the downstream refuses calls, since they may go on calling", () => {
    const first = reported({ success: 9 });
    const raised = next(held, first, [], silentFor(15_000));
    const counts = { ...noCounts, success: 9, throttled: 5 };
    const second = report("a", 2, addToTotals(first[0]!.totals, sampleOf(0, { counts })));
    const refused = next(raised, [second], first, silentFor(16_000));
    expect(refused.silent).toBeUndefined();
    expect(refused.stored?.doubted).toEqual(["gone"]);
    expect(next(refused, [], [], silentFor(30_000)).silent).toBeUndefined();
  });

  test("are never made up for above a maximum, or above a limit that was set by hand", () => {
    const silent = silentFor(60_000);
    const { settings } = held;
    const most = { ...held, settings: { ...settings, max: 24 } };
    expect(next(most, reported({ success: 9 }), [], silent).silent).toBeUndefined();
    const enough = { ...held, settings: { ...settings, max: 25 } };
    expect(next(enough, reported({ success: 9 }), [], silent).silent).toEqual({ gone: 7 });
    const pinned = { ...held, settings: { ...settings, pinned: 20 } };
    expect(next(pinned, reported({ success: 9 }), [], silent).silent).toBeUndefined();
  });

  test("count against the bound again as soon as they renew their entries", () => {
    const silent = { gone: 7 };
    expect(countedPermits(held.shares, silent)).toBe(15);
    const renewed = { ...held.shares, gone: { ...entry, renewal: 8 } };
    expect(countedPermits(renewed, silent)).toBe(20);
    expect(countedPermits(held.shares)).toBe(20);
  });
});
