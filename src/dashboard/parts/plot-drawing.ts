import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { tickText } from "../facts/series/moment.ts";
import { singlesOf, stacked } from "../facts/series/order.ts";

/** How a line is drawn. */
export type LineShape = {
  readonly tone: "accent" | "good" | "warn" | "wrong" | "plain";
  /** Bars stand on those that come after them; steps stay until the next value. Default: a line. */
  readonly kind?: "line" | "bars" | "steps";
};

/** What is drawn: values at times that rise, of the lines that it was made with. */
export type Drawn = {
  readonly timesMs: number[];
  readonly values: readonly (number | null)[][];
  readonly marks: readonly { readonly atMs: number }[];
  readonly valueText: (value: number) => string;
};

export type Drawing = {
  show(next: Drawn): void;
  /** Puts the cursor at a row, or takes it away. */
  pointAt(row: number | undefined): void;
  remove(): void;
};

const height = 168;
const tokens = {
  accent: "accent",
  good: "good",
  warn: "warn",
  wrong: "wrong",
  plain: "soft",
} as const;
const font = '11px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif';

// Whole numbers, since nothing is counted in parts.
const countSteps = Array.from({ length: 15 }, (_, power) =>
  [1, 2, 5].map((each) => each * 10 ** power),
).flat();
const minuteSteps = [1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1_440, 2_880, 14_400];
const durationSteps = countSteps
  .filter((each) => each <= 10_000)
  .concat(15_000, 30_000)
  .concat(minuteSteps.map((each) => each * 60_000));

/** Draws lines into an element, in the colours of the page. */
export function drawPlot(
  host: HTMLElement,
  lines: readonly LineShape[],
  first: Drawn,
  { isDuration, onCursor }: { isDuration: boolean; onCursor: (row: number | undefined) => void },
): Drawing {
  let drawn = first;
  const styles = getComputedStyle(host);
  const token = (name: string) => styles.getPropertyValue(`--${name}`).trim();
  const toned = (tone: LineShape["tone"]) => () => token(tokens[tone]);
  const axis = {
    stroke: () => token("soft"),
    font,
    grid: { stroke: () => token("line"), width: 1 },
    ticks: { show: false },
  };

  const plot = new uPlot(
    {
      width: Math.max(1, host.clientWidth),
      height,
      ms: 1,
      padding: [8, 16, 0, 0],
      legend: { show: false },
      cursor: {
        y: false,
        drag: { x: false, y: false, setScale: false },
        points: { size: 6, width: 1 },
        // The cursor of one plot is at the same time in all that are in sight.
        sync: { key: "time", scales: ["x", null], setSeries: false },
      },
      scales: {
        x: { time: true, range: () => rangeOf(drawn.timesMs) },
        y: { range: (_, __, max) => [0, max > 0 ? max * 1.08 : 1] },
      },
      axes: [
        { ...axis, size: 26, space: 64, values: (_, splits) => splits.map(tickText) },
        {
          ...axis,
          space: 34,
          incrs: isDuration ? durationSteps : countSteps,
          values: (_, splits) => splits.map((each) => drawn.valueText(each)),
          size: (_, values) => widthOf(values ?? []),
        },
      ],
      series: [
        {},
        ...lines.map(({ tone, kind = "line" }): uPlot.Series => {
          const stroke = toned(tone);
          const points = {
            show: false,
            size: 4,
            fill: stroke,
            filter: (self: uPlot, line: number) =>
              kind === "line" ? singlesOf(self.data[line] as (number | null)[]) : null,
          };
          switch (kind) {
            case "line":
              return { stroke, width: 1.5, points };
            case "steps":
              return {
                stroke,
                width: 2,
                points,
                paths: uPlot.paths.stepped!({ align: 1, alignGaps: 1, extend: true }),
              };
            case "bars":
              return {
                stroke,
                fill: stroke,
                width: 0,
                points,
                paths: uPlot.paths.bars!({ size: [0.75, 24, 1], align: 1 }),
              };
          }
        }),
      ],
      hooks: {
        setCursor: [(self) => onCursor(self.cursor.idx ?? undefined)],
        draw: [(self) => drawMarks(self, drawn.marks, token("warn"))],
      },
    },
    dataOf(lines, first),
    host,
  );

  const dark = matchMedia("(prefers-color-scheme: dark)");
  const onTheme = () => plot.redraw(false);
  dark.addEventListener("change", onTheme);
  const observer = new ResizeObserver(() => {
    const width = host.clientWidth;
    if (width > 0 && width !== plot.width) plot.setSize({ width, height });
  });
  observer.observe(host);

  return {
    show(next) {
      drawn = next;
      plot.setData(dataOf(lines, next));
    },
    pointAt(row) {
      const atMs = row === undefined ? undefined : drawn.timesMs[row];
      const left = atMs === undefined ? -10 : plot.valToPos(atMs, "x");
      plot.setCursor({ left, top: atMs === undefined ? -10 : 0 });
    },
    remove() {
      observer.disconnect();
      dark.removeEventListener("change", onTheme);
      plot.destroy();
    },
  };
}

/** Bars stand on those that come after them. */
function dataOf(
  lines: readonly Pick<LineShape, "kind">[],
  { timesMs, values }: Drawn,
): uPlot.AlignedData {
  const isBar = (at: number) => lines[at]?.kind === "bars";
  const bars = stacked(values.filter((_, at) => isBar(at)));
  let next = 0;
  return [timesMs, ...values.map((each, at) => (isBar(at) ? bars[next++]! : each))];
}

function rangeOf(timesMs: readonly number[]): [number, number] {
  const from = timesMs[0] ?? 0;
  const to = timesMs.at(-1) ?? from;
  // The last one stands for a time as well, which is as long as that before it.
  const step = timesMs.length > 1 ? to - timesMs.at(-2)! : 60_000;
  return [from, to + step];
}

function widthOf(values: readonly (string | null)[]): number {
  const longest = values.reduce((max, each) => Math.max(max, each?.length ?? 0), 0);
  return Math.max(30, 12 + longest * 6.2);
}

/** A line at the time of each mark. */
function drawMarks(plot: uPlot, marks: Drawn["marks"], color: string): void {
  const { ctx, bbox } = plot;
  const { min, max } = plot.scales["x"] ?? {};
  if (min == null || max == null) return;
  ctx.save();
  ctx.strokeStyle = color;
  ctx.lineWidth = uPlot.pxRatio;
  ctx.setLineDash([2 * uPlot.pxRatio, 3 * uPlot.pxRatio]);
  ctx.beginPath();
  for (const { atMs } of marks) {
    if (atMs < min || atMs > max) continue;
    const left = Math.round(plot.valToPos(atMs, "x", true));
    ctx.moveTo(left, bbox.top);
    ctx.lineTo(left, bbox.top + bbox.height);
  }
  ctx.stroke();
  ctx.restore();
}
