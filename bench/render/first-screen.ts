import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { spreadOf } from "../report.ts";
import { findResults, type ResultsName } from "../side-by-side/results.ts";
import { loadThrottle } from "../throttle/results.ts";
import { markdownTable, shown } from "./shown.ts";

const page = fileURLToPath(new URL("../../docs/benchmarks.md", import.meta.url));
const begin = "<!-- the six figures: made by `npm run bench -- render` -->";
const end = "<!-- end of the six figures -->";

type FigureRow = {
  readonly title: string;
  readonly results: ResultsName;
  readonly metric: string;
  readonly ours: string;
  /** Systems of the same run, by what they are called here. */
  readonly beside: Readonly<Record<string, string>>;
  readonly unit: string;
};

const rows: readonly FigureRow[] = [
  {
    title: "Tasks a second, out of a backlog, by one process with nothing configured, on Postgres",
    results: "tasks-postgres",
    metric: "tasks.drain",
    ours: "flotilla-default",
    beside: {
      "graphile-worker": "graphile-worker at its best",
      "graphile-worker-default": "with nothing configured",
      "pg-boss": "pg-boss at its best",
    },
    unit: "/s",
  },
  {
    title: "Tasks a second, enqueued by 256 callers that each wait, on Postgres",
    results: "tasks-postgres",
    metric: "tasks.enqueue.concurrent",
    ours: "flotilla",
    beside: {
      "graphile-worker": "graphile-worker",
      "pg-boss": "pg-boss",
      "bullmq-redis-aof": "BullMQ on a Redis that keeps it",
    },
    unit: "/s",
  },
  {
    title: "From `enqueue` to the handler in another process, half of them, on Postgres",
    results: "tasks-postgres",
    metric: "tasks.wakeup.p50",
    ours: "flotilla",
    beside: {
      "graphile-worker": "graphile-worker",
      "bullmq-redis-aof": "BullMQ on a Redis that keeps it",
    },
    unit: " ms",
  },
  {
    title: "Transitions of flows a second, 100 runs at once, on Postgres",
    results: "flows-postgres",
    metric: "flows.transitions",
    ours: "flotilla",
    beside: { restate: "Restate at its best", dbos: "DBOS" },
    unit: "/s",
  },
  {
    title: "Chat messages a second, stored and acknowledged, on SQLite",
    results: "sessions-sqlite",
    metric: "sessions.acked",
    ours: "flotilla",
    beside: { limit: "bare sockets that store nothing" },
    unit: "/s",
  },
];

/** Puts the figures that matter most at the top of the page. */
export function renderFirstScreen(): string[] {
  const text = readFileSync(page, "utf8");
  const from = text.indexOf(begin);
  const to = text.indexOf(end);
  if (from === -1 || to < from) throw new Error(`${page} has no place for figures: ${begin}`);
  const lines = [...rows.map(lineOf), throttleLine()].filter((line) => line !== undefined);
  const table = markdownTable([["what", "Flotilla", "beside it, in the same run"], ...lines]);
  writeFileSync(page, `${text.slice(0, from + begin.length)}\n\n${table}\n\n${text.slice(to)}`);
  return [page];
}

function lineOf({ title, results, metric, ours, beside, unit }: FigureRow): string[] | undefined {
  const figures = findResults(results)?.works.find((work) => work.metric === metric)?.figures;
  const medianOf = (system: string): string | undefined => {
    const rounds = figures?.[system];
    if (!rounds || rounds.length === 0) return undefined;
    return `${shown(spreadOf(rounds.map(({ value }) => value)).value)}${unit}`;
  };
  const own = medianOf(ours);
  if (own === undefined) return undefined;
  const others = Object.entries(beside).flatMap(([system, name]) => {
    const value = medianOf(system);
    return value === undefined ? [] : [`${name} ${value}`];
  });
  return [title, own, others.join(", ")];
}

/** What half of a model API's capacity leaves to eight pods, after a minute at the whole. */
function throttleLine(): string[] | undefined {
  const found = loadThrottle()?.rows.filter(
    ({ scenario, capacity, wall, pods }) =>
      scenario === "halved" && capacity === 20 && wall === "hard" && pods === 8,
  );
  const scoreOf = (contender: string): string | undefined => {
    const row = found?.find((each) => each.contender === contender);
    return row && `${percent(row.use)} used, ${percent(row.throttled)} refused`;
  };
  const own = scoreOf("flotilla");
  if (own === undefined) return undefined;
  const beside = [
    `a limit per pod that rises and halves ${scoreOf("aimd_per_pod")}`,
    `half of the true limit, set by hand, ${scoreOf("fixed_half")}`,
  ];
  return [
    "A model API's limit falls to half, eight pods, nothing configured",
    own,
    beside.join("; "),
  ];
}

function percent(share: number): string {
  return `${(share * 100).toFixed(share < 0.1 ? 1 : 0)} %`;
}
