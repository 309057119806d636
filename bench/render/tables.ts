import { measure } from "../report.ts";
import type { Results } from "../side-by-side/results.ts";
import { cell, markdownTable, shown } from "./shown.ts";

type Column = { readonly title: string; readonly metric: string };

export type Group = {
  readonly title: string;
  readonly columns: readonly Column[];
  /** Whether our ratio against the others is shown too. */
  readonly rated: boolean;
};

const groupsOfTasks: readonly Group[] = [
  {
    title: "Enqueueing, tasks/s",
    rated: true,
    columns: [
      { title: "1 caller", metric: "tasks.enqueue.sequential" },
      { title: "256 callers", metric: "tasks.enqueue.concurrent" },
      { title: "1,000 at once, 1 caller", metric: "tasks.enqueue.bulk" },
      { title: "1,000 at once, 4 callers", metric: "tasks.enqueue.bulk_4_callers" },
    ],
  },
  {
    title: "Draining a backlog, tasks/s",
    rated: true,
    columns: [
      { title: "no-op, 1 process", metric: "tasks.drain" },
      { title: "no-op, 2 processes", metric: "tasks.drain.two_processes" },
      { title: "1 ms each", metric: "tasks.drain.of_1ms" },
      { title: "1,000,000 finished rows", metric: "tasks.drain.after_million" },
      { title: "an old snapshot held", metric: "tasks.drain.snapshot_held" },
      { title: "encrypted", metric: "tasks.drain.codec" },
    ],
  },
  {
    title: "Waking up, ms",
    rated: true,
    columns: [
      { title: "p50", metric: "tasks.wakeup.p50" },
      { title: "p99", metric: "tasks.wakeup.p99" },
    ],
  },
  {
    title: "CPU per task of a drain, us",
    rated: false,
    columns: [
      { title: "Node", metric: "tasks.drain.cpu" },
      { title: "server", metric: "tasks.drain.server_cpu" },
    ],
  },
  {
    title: "Written per task of a drain, on Postgres",
    rated: false,
    columns: [
      { title: "bytes of WAL", metric: "tasks.drain.wal_bytes" },
      { title: "commits", metric: "tasks.drain.commits" },
      {
        title: "dead rows while a snapshot is held",
        metric: "tasks.drain.snapshot_held.dead_rows",
      },
    ],
  },
];

/** Tables of every system, then our ratios, then the conditions: all that the results hold. */
export function tablesOf(results: Results, groups: readonly Group[] = groupsOfTasks): string {
  const parts = groups.flatMap(({ title, columns }) => {
    const present = columns.filter(({ metric }) => workOf(results, metric));
    return present.length === 0 ? [] : [`**${title}**`, groupTable(results, present)];
  });
  return [
    ...parts,
    "**Our ratio**, above 1 is better",
    ratioTable(results, groups),
    conditions(results),
  ].join("\n\n");
}

function groupTable(results: Results, columns: readonly Column[]): string {
  const works = columns.map(({ metric }) => workOf(results, metric)!);
  const keys = [...new Set(works.flatMap(({ figures }) => Object.keys(figures)))];
  return markdownTable([
    ["", ...columns.map(({ title }) => title)],
    ...keys.map((key) => [key, ...works.map(({ figures }) => cell(figures[key]))]),
  ]);
}

const ours = ["flotilla", "flotilla-default"];

/** Ratios are taken within a round; this shows the median of them. */
function ratioTable(results: Results, groups: readonly Group[]): string {
  const rated = groups
    .filter((group) => group.rated)
    .flatMap(({ columns }) => columns)
    .flatMap(({ metric }) => workOf(results, metric) ?? []);
  const peers = [...new Set(rated.flatMap(({ figures }) => Object.keys(figures)))].filter(
    (key) => !ours.includes(key),
  );
  const lines = rated.flatMap(({ metric, unit, better, figures }) =>
    ours.flatMap((key) => {
      const values = (name: string) => figures[name]?.map(({ value }) => value);
      const mine = values(key);
      if (!mine) return [];
      const others = Object.fromEntries(
        peers.flatMap((peer) => {
          const theirs = values(peer);
          return theirs ? [[peer, theirs]] : [];
        }),
      );
      const { versus } = measure({ metric, unit, better, ours: mine, others });
      const name = key === "flotilla" ? `\`${metric}\`` : `\`${metric}.default_slots\``;
      return [[name, ...peers.map((peer) => (versus[peer] ? shown(versus[peer].value) : ""))]];
    }),
  );
  return markdownTable([["", ...peers], ...lines]);
}

function conditions({ machine, servers, systems, works }: Results): string {
  const days = [...new Set(works.map(({ day, commit }) => `${day} at ${commit}`))];
  return [
    `- Machine: ${machine}. Measured ${days.join(", ")}.`,
    ...Object.values(servers).map((server) => `- ${server}.`),
    ...Object.entries(systems).map(([key, about]) => `- \`${key}\`: ${about}.`),
  ].join("\n");
}

function workOf({ works }: Results, metric: string) {
  return works.find((work) => work.metric === metric);
}
