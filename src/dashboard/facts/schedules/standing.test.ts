import { describe, expect, test } from "vitest";
import { firingRemark, missedPolicy, scheduleStanding, timeInZone } from "./standing.ts";

const nowMs = 1_800_000_000_000;
const schedule = {
  name: "mail",
  state: "active",
  nextAtMs: nowMs + 5_000,
  error: null,
  noWorker: false,
  missed: "once",
} as const;

describe("how a schedule stands", () => {
  test("is active, until its time has come and no pod has fired it", () => {
    expect(scheduleStanding(schedule, nowMs)).toEqual({ word: "active", tone: "good" });
    expect(scheduleStanding({ ...schedule, nextAtMs: nowMs - 59_000 }, nowMs).word).toBe("active");
    expect(scheduleStanding({ ...schedule, nextAtMs: nowMs - 180_000 }, nowMs)).toMatchObject({
      word: "overdue",
      tone: "wrong",
      why: "its time came 3 min ago, and no pod has fired it: is one up?",
    });
  });

  test("says where no pod would run its tasks", () => {
    expect(scheduleStanding({ ...schedule, noWorker: true }, nowMs)).toMatchObject({
      word: "no worker",
      why: "no live pod has a handler for mail",
    });
  });

  test("is paused, ended or broken before all else", () => {
    const of = (state: "paused" | "ended" | "broken") =>
      scheduleStanding({ ...schedule, state, nextAtMs: null, error: "no such zone" }, nowMs);
    expect(of("paused")).toEqual({ word: "paused", tone: "warn" });
    expect(of("ended").word).toBe("ended");
    expect(of("broken")).toMatchObject({ tone: "wrong", why: "no such zone" });
  });

  test("has words for what becomes of missed times", () => {
    for (const missed of ["once", "skip", "all"] as const)
      expect(missedPolicy(missed)).toMatch(/^make /);
  });
});

describe("a past firing", () => {
  test("is remarkable where it was late or others before it were missed", () => {
    expect(firingRemark({ lagMs: 800, skipped: 0 })).toBeUndefined();
    expect(firingRemark({ lagMs: null, skipped: null })).toBeUndefined();
    expect(firingRemark({ lagMs: 120_000, skipped: 0 })).toBe("2 min late");
    expect(firingRemark({ lagMs: 0, skipped: 1 })).toBe("1 time before it had no task");
    expect(firingRemark({ lagMs: 3_600_000, skipped: 3 })).toBe(
      "1 h late, 3 times before it had no task",
    );
  });
});

describe("a time in a zone", () => {
  const atMs = Date.parse("2026-07-01T01:00:00Z");

  test("is what clocks there show", () => {
    expect(timeInZone(atMs, "Europe/Berlin")).toContain("03:00:00");
    expect(timeInZone(atMs, "UTC")).toContain("01:00:00");
  });

  test("is that of the browser where there is no such zone or time", () => {
    expect(timeInZone(atMs, "<img>")).toMatch(/2026-0[67]-/);
    expect(timeInZone(Number.NaN, "UTC")).toBe("no time");
  });
});
