import { describe, expect, test } from "vitest";
import {
  seriesTimes,
  countValue,
  gaugeValue,
  hasCounted,
  linesAcross,
  linesOf,
  percentileValue,
  type SeriesFacts,
  type PlotPoint,
} from "./lines.ts";
import { spanNamed, spans, spanSearch } from "./span.ts";

const minuteMs = 60_000;
const hourMs = 60 * minuteMs;
const at = 1_800_000_000_000;
const durations = { count: 2, sumMs: 30, p50Ms: 10, p95Ms: 20, buckets: [0, 0, 0, 0, 2] };
const point = (atMs: number, more: Partial<PlotPoint> = {}): PlotPoint => ({
  atMs,
  counts: {},
  gauges: {},
  wait: null,
  run: null,
  ...more,
});
const series = (points: PlotPoint[], more: Partial<SeriesFacts> = {}): SeriesFacts => ({
  subject: "task",
  step: "minute",
  fromMs: at,
  toMs: at + 4 * minuteMs,
  points,
  ...more,
});
const completed = { name: "completed", tone: "good", value: countValue("completed") } as const;

describe("the axis of a series", () => {
  test("has every minute from the first that is asked for, whole ones", () => {
    const found = seriesTimes(series([], { fromMs: at + 1, toMs: at + 2 * minuteMs + 1 }));
    expect(found).toEqual([at, at + minuteMs, at + 2 * minuteMs]);
  });

  test("has hours where a point is an hour", () => {
    const found = seriesTimes(series([], { step: "hour", toMs: at + 2 * hourMs }));
    expect(found).toHaveLength(2);
    expect(found[1]! - found[0]!).toBe(hourMs);
  });

  test("ends somewhere, whatever the times are", () => {
    expect(seriesTimes(series([], { toMs: at + 1e15 }))).toHaveLength(1_501);
    expect(seriesTimes(series([], { toMs: at - hourMs }))).toEqual([]);
    expect(seriesTimes(series([], { toMs: Number.NaN }))).toEqual([]);
  });
});

describe("the lines of a series", () => {
  test("have gaps where nothing was counted, and none where a point counts nothing of it", () => {
    const points = [
      point(at, { counts: { completed: 3, failed: 1 } }),
      point(at + 2 * minuteMs, { counts: { failed: 2 } }),
    ];
    const { timesMs, lines } = linesOf(series(points), [completed]);
    expect(timesMs).toHaveLength(4);
    expect(lines).toEqual([{ name: "completed", tone: "good", values: [3, null, 0, null] }]);
  });

  test("leave out points that aren't on the axis, as of a clock that was set back", () => {
    const points = [point(at + 1), point(at - minuteMs), point(at + minuteMs)];
    const [line] = linesOf(series(points), [completed]).lines;
    expect(line!.values).toEqual([null, 0, null, null]);
  });

  test("are counts, several added, gauges and percentiles", () => {
    const found = point(at, {
      counts: { timeout: 1, server_error: 2 },
      gauges: { inFlight: 1.5 },
      wait: durations,
    });
    expect(countValue("timeout", "server_error", "other")(found)).toBe(3);
    expect(gaugeValue("inFlight")(found)).toBe(1.5);
    expect(gaugeValue("waiting")(found)).toBe(0);
    expect(percentileValue("wait", "p95Ms")(found)).toBe(20);
    expect(percentileValue("run", "p95Ms")(found)).toBeNull();
  });

  test("of several answers are on one axis, though a minute began between them", () => {
    const counted = (atMs: number, count: number) => point(atMs, { counts: { completed: count } });
    const early = series([counted(at, 1)], { toMs: at + minuteMs });
    const late = series([counted(at + minuteMs, 2)], {
      fromMs: at + minuteMs,
      toMs: at + 2 * minuteMs,
    });
    const { timesMs, lines } = linesAcross([
      { series: late, line: completed },
      { series: early, line: completed },
    ]);
    expect(timesMs).toEqual([at, at + minuteMs]);
    expect(lines.map(({ values }) => values)).toEqual([
      [null, 2],
      [1, null],
    ]);
  });

  test("take nothing that an object has from elsewhere", () => {
    expect(countValue("constructor", "__proto__")(point(at))).toBe(0);
  });

  test("know whether there is anything to show", () => {
    const found = series([point(at), point(at + minuteMs, { counts: { inputTokens: 5 } })]);
    expect(hasCounted(found, "inputTokens", "outputTokens")).toBe(true);
    expect(hasCounted(found, "cost")).toBe(false);
  });
});

describe("the span of an address", () => {
  test.each([
    ["6h", "6h"],
    [undefined, "1h"],
    ["2y", "1h"],
    ["constructor", "1h"],
  ])("of %s is %s", (text, span) => {
    expect(spanNamed(text)).toBe(span);
  });

  test("is left out where it is the one without", () => {
    expect(spanSearch("1h")).toEqual({});
    expect(spanSearch("7d")).toEqual({ span: "7d" });
  });

  test("has no more points than the server gives at once", () => {
    for (const { ms, step } of Object.values(spans))
      expect(ms / (step === "minute" ? minuteMs : hourMs)).toBeLessThanOrEqual(1_500);
  });
});
