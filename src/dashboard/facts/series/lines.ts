import type { fleetSpecs } from "../../../server/api/fleet.schema.ts";
import type { Answered } from "../../api.ts";
import type { PlotLine } from "../../parts/plot.tsx";

/** What `/v1/series` says of a subject. */
export type SeriesFacts = Answered<typeof fleetSpecs.series>;
export type PlotPoint = SeriesFacts["points"][number];

/** A line that is wanted, and what its value at a point is. */
export type WantedLine = Omit<PlotLine, "values"> & {
  readonly value: (point: PlotPoint) => number | null;
};

export type PlotLines = {
  readonly timesMs: readonly number[];
  readonly lines: readonly PlotLine[];
};

const stepMs = { minute: 60_000, hour: 3_600_000 } as const;
// As many as the server gives, whatever it says of its times.
const maxTimes = 1_501;

/** The begin of every minute or hour that the answer is about, rising. */
export function seriesTimes({ step, fromMs, toMs }: SeriesFacts): number[] {
  const size = stepMs[step];
  const first = Math.floor(fromMs / size) * size;
  const count = Math.ceil((toMs - first) / size);
  if (!Number.isFinite(count) || count <= 0) return [];
  return Array.from({ length: Math.min(count, maxTimes) }, (_, at) => first + at * size);
}

/** Lines over every minute or hour of the answer. Where nothing was counted there is a gap. */
export function linesOf(series: SeriesFacts, wanted: readonly WantedLine[]): PlotLines {
  return linesAcross(wanted.map((line) => ({ series, line })));
}

/** The same of several answers, on one axis: they may have been read in different minutes. */
export function linesAcross(
  wanted: readonly { readonly series: SeriesFacts; readonly line: WantedLine }[],
): PlotLines {
  const answers = new Set(wanted.map(({ series }) => series));
  const times = new Set([...answers].flatMap(seriesTimes));
  const timesMs = [...times].toSorted((one, other) => one - other);
  const pointsOf = new Map(
    [...answers].map((series) => [
      series,
      new Map(series.points.map((point) => [point.atMs, point])),
    ]),
  );
  const lines = wanted.map(({ series, line: { value, ...line } }) => ({
    ...line,
    values: timesMs.map((atMs) => {
      const point = pointsOf.get(series)!.get(atMs);
      return point === undefined ? null : value(point);
    }),
  }));
  return { timesMs, lines };
}

/** How many there were of these in all. What a point doesn't name is none. */
export function countValue(...names: readonly string[]): WantedLine["value"] {
  return ({ counts }) => names.reduce((sum, name) => sum + ownNumber(counts, name), 0);
}

/** How many there were at a time. */
export function gaugeValue(name: string): WantedLine["value"] {
  return ({ gauges }) => ownNumber(gauges, name);
}

/** A percentile of waits or of durations; a gap where there were none. */
export function percentileValue(
  what: "wait" | "run",
  which: "p50Ms" | "p95Ms",
): WantedLine["value"] {
  return ({ [what]: durations }) => durations?.[which] ?? null;
}

/** Whether any point has counted one of these. */
export function hasCounted({ points }: SeriesFacts, ...names: readonly string[]): boolean {
  return points.some((point) => (countValue(...names)(point) ?? 0) > 0);
}

/** The words for how much time a point stands for, as in “per minute”. */
export function perStep({ step }: Pick<SeriesFacts, "step">): string {
  return `per ${step}`;
}

function ownNumber(numbers: Readonly<Record<string, number>>, name: string): number {
  return Object.hasOwn(numbers, name) ? numbers[name]! : 0;
}
