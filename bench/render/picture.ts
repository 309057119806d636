import { median } from "../statistics.ts";
import type { Results } from "../side-by-side/results.ts";
import { shown } from "./shown.ts";

type Panel = { readonly title: string; readonly metric: string; readonly note: string };

const panels: readonly Panel[] = [
  {
    title: "Draining no-op tasks, one process",
    metric: "tasks.drain",
    note: "tasks/s, more is better",
  },
  {
    title: "Draining no-op tasks, two processes",
    metric: "tasks.drain.two_processes",
    note: "tasks/s, more is better",
  },
  {
    title: "256 callers that each enqueue one task",
    metric: "tasks.enqueue.concurrent",
    note: "tasks/s, more is better",
  },
  {
    title: "Enqueueing 1,000 at once, four callers",
    metric: "tasks.enqueue.bulk_4_callers",
    note: "tasks/s, more is better",
  },
  {
    title: "From enqueue to start, idle system, median",
    metric: "tasks.wakeup.p50",
    note: "ms, less is better",
  },
];

const width = 760;
const margin = 20;
const labels = 200;
const bars = width - 2 * margin - labels - 80;
const rowHeight = 22;
const titleHeight = 44;

/** Bars for people, in colours that hold on light and on dark. */
export function pictureOf({ works }: Results): string {
  const parts: string[] = [];
  let top = margin;
  for (const { title, metric, note } of panels) {
    const work = works.find((each) => each.metric === metric);
    if (!work) continue;
    const rows = Object.entries(work.figures)
      .map(([key, rounds]) => ({ key, value: median(rounds.map((figure) => figure.value)) }))
      .toSorted((a, b) => (work.better === "higher" ? b.value - a.value : a.value - b.value));
    const most = Math.max(...rows.map(({ value }) => value));
    parts.push(
      text({ x: margin, y: top + 18, kind: "title", words: title }),
      text({ x: width - margin, y: top + 18, kind: "note", words: note, end: true }),
    );
    rows.forEach(({ key, value }, at) => {
      const y = top + titleHeight - 12 + at * rowHeight;
      const long = Math.max(1, Math.round((value / most) * bars));
      const kind = key.startsWith("flotilla") ? "ours" : key.startsWith("limit") ? "limit" : "bar";
      parts.push(
        text({ x: margin + labels - 8, y: y + 12, kind: "label", words: key, end: true }),
        `<rect class="${kind}" x="${margin + labels}" y="${y}" width="${long}" height="16" rx="2"/>`,
        text({ x: margin + labels + long + 6, y: y + 12, kind: "label", words: shown(value) }),
      );
    });
    top += titleHeight + rows.length * rowHeight + 8;
  }
  const height = top + margin - 8;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="Flotilla beside other queues on Postgres and Redis">
<style>
text { font: 13px system-ui, sans-serif; fill: #1f2328 }
.title { font-weight: 600; font-size: 14px }
.note { fill: #59636e }
.paper { fill: #ffffff; stroke: #d1d9e0 }
.ours { fill: #0a7d5a }
.limit { fill: #b8860b }
.bar { fill: #8b98a5 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 }
  .note { fill: #9198a1 }
  .paper { fill: #0d1117; stroke: #3d444d }
  .ours { fill: #2fbf8f }
  .limit { fill: #d9a93a }
  .bar { fill: #6e7985 }
}
</style>
<rect class="paper" x="0.5" y="0.5" width="${width - 1}" height="${height - 1}" rx="6"/>
${parts.join("\n")}
</svg>
`;
}

type Text = {
  readonly x: number;
  readonly y: number;
  readonly kind: string;
  readonly words: string;
  readonly end?: boolean;
};

function text({ x, y, kind, words, end = false }: Text): string {
  const anchor = end ? ' text-anchor="end"' : "";
  return `<text class="${kind}" x="${x}" y="${y}"${anchor}>${words.replaceAll("&", "&amp;").replaceAll("<", "&lt;")}</text>`;
}
