import { describe, expect, test } from "vitest";
import { type Missed, planOf, maxTimes, skippedBefore } from "./plan.ts";
import { timesOf } from "./times.ts";

const minuteMs = 60_000;
const times = timesOf("@every 60000", "UTC");
const from = 1_800_000_000_000;

/** Seen at some moment: the times are the full minutes after `from`. */
const plan = (
  missed: Missed,
  nowMs: number,
  row: { nextAtMs?: number | null; max?: number } = {},
) => planOf(times, { nextAtMs: from + minuteMs, afterMs: from, missed, ...row }, from + nowMs);
const minutes = (all: readonly number[]) => all.map((atMs) => (atMs - from) / minuteMs);

describe("what to do about a schedule", () => {
  test.each<Missed>(["skip", "once", "all"])("%s: nothing before its time", (missed) => {
    expect(plan(missed, minuteMs - 1)).toEqual({
      fire: [],
      skipped: 0,
      nextAtMs: from + minuteMs,
    });
  });

  test.each<Missed>(["skip", "once", "all"])("%s: a time that has come is fired", (missed) => {
    expect(plan(missed, minuteMs)).toEqual({
      fire: [from + minuteMs],
      skipped: 0,
      nextAtMs: from + 2 * minuteMs,
    });
  });

  test.each<[Missed, number[], number]>([
    ["skip", [5], 4],
    ["once", [5], 4],
    ["all", [1, 2, 3, 4, 5], 0],
  ])("%s: of five times that have come it fires %j", (missed, fired, skipped) => {
    const planned = plan(missed, 5.5 * minuteMs);
    expect(minutes(planned.fire)).toEqual(fired);
    expect(planned).toMatchObject({ skipped, nextAtMs: from + 6 * minuteMs });
  });

  test.each<[Missed, number]>([
    ["skip", 0],
    ["once", 1],
    ["all", 1],
  ])("%s: of one time that is an hour late it fires %i", (missed, fired) => {
    const hourly = timesOf("0 * * * *", "UTC");
    const nextAtMs = Date.parse("2026-03-01T10:00:00Z");
    const row = { nextAtMs, afterMs: nextAtMs - 1, missed };
    const planned = planOf(hourly, row, nextAtMs + 59 * minuteMs);
    expect(planned.fire).toEqual(fired === 1 ? [nextAtMs] : []);
    expect(planned.skipped).toBe(1 - fired);
    expect(planned.nextAtMs).toBe(nextAtMs + 60 * minuteMs);
  });

  test.each<[Missed, number[]]>([
    ["skip", [1_000]],
    ["once", [1_000]],
    ["all", Array.from({ length: maxTimes }, (_, at) => at + 1)],
  ])("%s: of a thousand times it fires some, and goes on from now", (missed, fired) => {
    const planned = plan(missed, 1_000 * minuteMs);
    expect(minutes(planned.fire)).toEqual(fired);
    expect(planned.skipped).toBe(maxTimes);
    expect(planned.nextAtMs).toBe(from + 1_001 * minuteMs);
  });

  test("no more than so many are fired at once, though all should be", () => {
    const planned = plan("all", 5 * minuteMs, { max: 2 });
    expect(minutes(planned.fire)).toEqual([1, 2]);
    expect(planned).toMatchObject({ skipped: 3, nextAtMs: from + 6 * minuteMs });
  });

  test("a next time that isn't worked out is the first after what is done with", () => {
    expect(plan("once", 10, { nextAtMs: 0 })).toMatchObject({
      fire: [],
      nextAtMs: from + minuteMs,
    });
    expect(minutes(plan("all", 2 * minuteMs, { nextAtMs: 0 }).fire)).toEqual([1, 2]);
  });

  test("where there is no next time, nothing is fired and none comes", () => {
    const over = timesOf("0 0 0 1 1 * 2026", "UTC");
    const nowMs = Date.parse("2026-03-01T00:00:00Z");
    const last = Date.parse("2026-01-01T00:00:00Z");
    const none = planOf(over, { nextAtMs: 0, afterMs: last, missed: "once" }, nowMs);
    expect(none).toEqual({ fire: [], skipped: 0, nextAtMs: null });
    const lastOne = planOf(over, { nextAtMs: last, afterMs: last - 1, missed: "once" }, nowMs);
    expect(lastOne).toEqual({ fire: [last], skipped: 0, nextAtMs: null });
  });
});

describe("times that got no task", () => {
  const at = (...all: (number | null)[]) =>
    all.map((minute) => (minute === null ? null : from + minute * minuteMs));

  test("are counted between each firing and the one before it, newest first", () => {
    expect(skippedBefore(times, at(9, 8, 5, 4))).toEqual([0, 2, 0, null]);
    expect(skippedBefore(times, [])).toEqual([]);
  });

  test("aren't those of a firing by hand, which comes between two others", () => {
    expect(skippedBefore(times, at(null, 9, null, 6))).toEqual([null, 2, null, null]);
  });

  test("aren't known where the pattern doesn't lead from one firing to the next", () => {
    const hourly = timesOf("0 * * * *", "UTC");
    const [first, second] = [hourly.next(from)!, hourly.next(hourly.next(from)!)!];
    expect(skippedBefore(hourly, [second, first, from + minuteMs])).toEqual([0, 0, null]);
    expect(skippedBefore(times, [from + 90_000, from])).toEqual([null, null]);
    expect(skippedBefore(times, at(1, 1))).toEqual([null, null]);
    expect(skippedBefore({ next: () => null }, at(2, 1))).toEqual([null, null]);
  });

  test("are looked for up to a bound, for a whole page", () => {
    expect(skippedBefore(times, at(200, 100, 0))).toEqual([99, 99, null]);
    expect(skippedBefore(times, at(1_001, 1_000, 0))).toEqual([0, null, null]);
  });
});
