import { throttledOf, useOf } from "./figures.ts";
import { type Slice, sliceMs } from "./ledger.ts";

/** What one contender did in a run, as a picture shows it. */
export type Curve = { readonly contender: string; readonly slices: readonly Slice[] };

const columns = 2;
const margin = 16;
const gap = 28;
const panel = { width: 420, height: 150 };
const titleHeight = 34;
const axisWidth = 26;
const strip = 22;
/** What is above this many times the capacity is cut off. */
const shownCapacities = 2.6;
/** Points of a curve are a second apart. */
const perPoint = 1_000 / sliceMs;

type PictureOptions = {
  readonly title: string;
  readonly curves: readonly Curve[];
  /** From where on the figures beside each name are taken. */
  readonly settledMs: number;
};

/** Limit, calls in flight, true capacity and 429s over time, one panel for each contender. */
export function pictureOfCurves({ title, curves, settledMs }: PictureOptions): string {
  const rows = Math.ceil(curves.length / columns);
  const width = 2 * margin + columns * panel.width + (columns - 1) * gap;
  const height = titleHeight + rows * (panel.height + titleHeight + gap);
  const most = Math.max(...curves.flatMap(({ slices }) => slices.map((slice) => slice.capacity)));
  const parts = curves.map((curve, at) => {
    const x = margin + (at % columns) * (panel.width + gap);
    const y = titleHeight + Math.floor(at / columns) * (panel.height + titleHeight + gap);
    return panelOf(curve, { x, y, most, settledMs });
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="${title}">
<style>
text { font: 12px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 14px }
.note { fill: #59636e; font-size: 11px }
.paper { fill: #ffffff; stroke: #d1d9e0 }
.frame { fill: none; stroke: #d1d9e0 }
.flight { fill: #8bb8d8; opacity: 0.7 }
.limit { fill: none; stroke: #0a7d5a; stroke-width: 1.6 }
.capacity { fill: none; stroke: #1f2328; stroke-width: 1.2; stroke-dasharray: 5 3 }
.refused { fill: #c9372c }
.refusals { stroke: #c9372c; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .note { fill: #9198a1 }
  .paper { fill: #0d1117; stroke: #3d444d }
  .frame { stroke: #3d444d }
  .flight { fill: #2d5d80 }
  .limit { stroke: #2fbf8f }
  .capacity { stroke: #e6edf3 }
  .refused { fill: #f0645a }
  .refusals { stroke: #f0645a }
}
</style>
<rect class="paper" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="6"/>
<text class="title" x="${margin}" y="22">${title}</text>
${legend(width)}
${parts.join("\n")}
</svg>
`;
}

type Place = {
  readonly x: number;
  readonly y: number;
  readonly most: number;
  readonly settledMs: number;
};

function panelOf({ contender, slices }: Curve, { x, y, most, settledMs }: Place): string {
  const points = everySecond(slices);
  const top = y + titleHeight - 8;
  const plotHeight = panel.height - strip;
  const left = x + axisWidth;
  const right = x + panel.width;
  const across = (at: number) => Math.round(left + ((right - left) * at) / (points.length - 1));
  const up = (count: number) => {
    const share = Math.min(1, count / (most * shownCapacities));
    return Math.round((top + plotHeight * (1 - share)) * 2) / 2;
  };
  const line = (of: (point: Point) => number) => {
    const heights = points.map((point) => up(of(point)));
    // In the middle of a level stretch a point adds nothing but length.
    const bends = (height: number, at: number) =>
      height !== heights[at - 1] || height !== heights[at + 1];
    return heights
      .flatMap((height, at) => (bends(height, at) ? [`${across(at)} ${height}`] : []))
      .join(" ");
  };
  const floor = top + panel.height;
  const refusals = points.flatMap(({ throttled }, at) => {
    const long = Math.round(throttled * (strip - 4) * 2) / 2;
    return throttled === 0 ? [] : [`M${across(at)} ${floor}v-${Math.max(1, long)}`];
  });
  const settled = slices.slice(settledMs / sliceMs);
  const figures = `used ${percent(useOf(settled))}, throttled ${percent(throttledOf(settled))}`;
  return `<text x="${x}" y="${y + 16}" style="font-weight:600">${contender}</text>
<text class="note" x="${right}" y="${y + 16}" text-anchor="end">${figures}</text>
<polygon class="flight" points="${left} ${up(0)} ${line((point) => point.inFlight)} ${right} ${up(0)}"/>
<polyline class="capacity" points="${line((point) => point.capacity)}"/>
<polyline class="limit" points="${line((point) => point.limit)}"/>
<path class="refusals" d="${refusals.join("")}"/>
<rect class="frame" x="${left}" y="${top}" width="${right - left}" height="${panel.height}"/>
${[0, most]
  .map(
    (count) =>
      `<text class="note" x="${left - 4}" y="${up(count) + 4}" text-anchor="end">${count}</text>`,
  )
  .join("")}
<text class="note" x="${left}" y="${floor + 14}">0</text>
<text class="note" x="${right}" y="${floor + 14}" text-anchor="end">${points.length} s</text>`;
}

type Point = {
  readonly limit: number;
  readonly inFlight: number;
  readonly capacity: number;
  readonly throttled: number;
};

function everySecond(slices: readonly Slice[]): Point[] {
  const points: Point[] = [];
  for (let at = 0; at + perPoint <= slices.length; at += perPoint) {
    const some = slices.slice(at, at + perPoint);
    const { limit, capacity } = some.at(-1)!;
    const inFlight = some.reduce((sum, slice) => sum + slice.inFlight, 0) / some.length;
    points.push({ limit, capacity, inFlight, throttled: throttledOf(some) });
  }
  return points;
}

function legend(width: number): string {
  const words = [
    ["limit", "M0 0h18", "limit"],
    ["capacity", "M0 0h18", "true capacity"],
  ] as const;
  const lines = words.map(
    ([kind, path, word], at) =>
      `<g transform="translate(${width - 500 + at * 70} 18)"><path class="${kind}" d="${path}"/><text class="note" x="24" y="4">${word}</text></g>`,
  );
  return `${lines.join("")}<g transform="translate(${width - 320} 18)"><rect class="flight" y="-5" width="18" height="10"/><text class="note" x="24" y="4">in flight</text></g>
<g transform="translate(${width - 230} 18)"><rect class="refused" y="-5" width="4" height="10"/><text class="note" x="10" y="4">share of refused or timed-out calls</text></g>`;
}

function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}
