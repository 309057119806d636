import { describe, expect, test } from "vitest";
import type { Clock } from "../base/clock.ts";
import type { Stats } from "../tasks/tasks.ts";
import { type LiveCounts, countsLine, countsTable, startLiveCounts } from "./live-counts.ts";
import { plain } from "./output.ts";

const none = { pending: 0, claimed: 0, completed: 0, failed: 0, cancelled: 0 };
const stats: Stats = {
  byStatus: { ...none, pending: 2, completed: 40 },
  noWorker: [],
  atLeast: [],
  byName: { mail: { ...none, pending: 2 }, page: { ...none, completed: 40 } },
};

describe("live counts", () => {
  test("show how many tasks were completed a second since the last count", async () => {
    const { live, shown, advance } = counting(async () => stats);
    await advance(0);
    for (let task = 0; task < 30; task++) {
      live.observe({ type: "ended", name: "mail", outcome: "completed", tookMs: 1 });
    }
    live.observe({ type: "ended", name: "mail", outcome: "failed", tookMs: 1 });
    await advance(1_000);
    expect(shown.map((each) => each.perSecond)).toEqual([0, 30]);
    live.stop();
    await advance(60_000);
    expect(shown).toHaveLength(2);
  });

  test("rest longer where counting takes long, and survive a count that fails", async () => {
    let asked = 0;
    const { advance, shown } = counting(async (spend) => {
      spend(500);
      if (++asked === 1) throw new Error("busy");
      return stats;
    });
    await advance(0);
    await advance(4_999);
    expect(asked).toBe(1);
    await advance(1);
    expect(asked).toBe(2);
    expect(shown).toHaveLength(1);
  });

  test("fit a line, and a table", () => {
    const counts = { stats, running: 1, perSecond: 4.25 };
    expect(countsLine(counts)).toBe(
      "pending 2  claimed 0  completed 40  failed 0  cancelled 0  running 1  4.3 completed/s",
    );
    const table = countsTable(counts, "http://127.0.0.1:8080").map((line) => plain(line));
    expect(table[2]).toMatch(/^mail +2 +0 +0 +0 +0$/);
    expect(table[4]).toMatch(/^all +2 +0 +40 +0 +0$/);
    expect(table.at(-1)).toBe("1 running · 4.3 completed/s · http://127.0.0.1:8080");
    const heldBack = ["full: 1 of 1", "memory 92 %: at most 1 for now"];
    expect(countsLine({ ...counts, heldBack })).toContain("completed/s  full: 1 of 1  memory 92 %");
    const fuller = countsTable({ ...counts, heldBack }, "").map((line) => plain(line));
    expect(fuller.at(-2)).toBe("full: 1 of 1 · memory 92 %: at most 1 for now");
  });

  test("say where there are more than were counted", () => {
    const many = { ...none, pending: 10_000, completed: 9_500 };
    const bounded: Stats = {
      ...stats,
      byStatus: many,
      byName: { mail: many },
      atLeast: ["completed", "cancelled"],
    };
    expect(countsLine({ stats: bounded, running: 0, perSecond: 0 })).toContain(
      "pending 10,000  claimed 0  completed 9,500+  failed 0  cancelled 0",
    );
    const table = countsTable({ stats: bounded, running: 0, perSecond: 0 }, "").map((line) =>
      plain(line),
    );
    expect(table[2]).toMatch(/^mail +10,000 +0 +9,500\+ +0 +0$/);
  });

  test("show so many names and no more", () => {
    const byName = Object.fromEntries(Array.from({ length: 500 }, (_, at) => [`n${at}`, none]));
    const table = countsTable({ stats: { ...stats, byName }, running: 0, perSecond: 0 }, "");
    expect(table.length).toBeLessThan(22);
    expect(table.join("\n")).toContain("and 485 more names");
  });
});

function counting(count: (spend: (ms: number) => void) => Promise<Stats>) {
  let nowMs = 0;
  let timers: { atMs: number; callback: () => void }[] = [];
  const clock: Clock = {
    now: () => nowMs,
    monotonic: () => nowMs,
    after(delayMs, callback) {
      const timer = { atMs: nowMs + delayMs, callback };
      timers.push(timer);
      return () => (timers = timers.filter((each) => each !== timer));
    },
  };
  const shown: LiveCounts[] = [];
  const live = startLiveCounts({
    stats: () => count((ms) => (nowMs += ms)),
    running: () => 0,
    clock,
    everyMs: 1_000,
    show: (counts) => shown.push(counts),
  });
  const advance = async (ms: number) => {
    nowMs += ms;
    const due = timers.filter((each) => each.atMs <= nowMs);
    timers = timers.filter((each) => each.atMs > nowMs);
    for (const timer of due) timer.callback();
    for (let turn = 0; turn < 10; turn++) await Promise.resolve();
  };
  return { live, shown, advance };
}
