import { type Measure, measure, type Report } from "../report.ts";
import type { Work } from "./figures.ts";
import type { About } from "./open.ts";

// What each kind of work cost besides is in the results; a report has it where it is asked for most.
const costs = /\.(cpu|server_cpu|client_cpu|rss|wal_bytes|commits|dead_rows)$/;
const costsShown = [
  "tasks.enqueue.concurrent.cpu",
  "tasks.drain.cpu",
  "tasks.drain.server_cpu",
  "tasks.drain.rss",
  "tasks.drain.wal_bytes",
  "tasks.drain.commits",
  "tasks.drain.snapshot_held.dead_rows",
  "cluster.idle.cpu",
];

/** Every kind of work as we did it, with our ratio against each of the others. */
export function reportOf(works: readonly Work[], about: About): Report {
  const cut = works.flatMap(({ metric, figures }) =>
    Object.entries(figures)
      .filter(([, rounds]) => rounds.some((figure) => figure.cut))
      .map(([key]) => `${metric}: ${key} was cut with its backlog still deep`),
  );
  return {
    measures: works
      .filter(({ metric }) => !costs.test(metric) || costsShown.includes(metric))
      .flatMap(measuresOf),
    notes: [
      ...cut,
      ...Object.values(about.servers),
      ...Object.entries(about.systems).map(([key, settings]) => `${key}: ${settings}`),
      about.machine,
    ],
  };
}

/** Ours against each of the others. What we do at our defaults has a metric of its own. */
function measuresOf({ metric, unit, better, figures }: Work): Measure[] {
  const rounds = (key: string) => figures[key]?.map(({ value }) => value);
  const peers = Object.fromEntries(
    Object.keys(figures)
      .filter((key) => !/^(flotilla|beside)/.test(key))
      .map((key) => [key, rounds(key)!]),
  );
  const ours = [
    { metric, rounds: rounds("flotilla"), beside: rounds("beside") },
    {
      metric: `${metric}.default_slots`,
      rounds: rounds("flotilla-default"),
      beside: rounds("beside-default"),
    },
  ];
  return ours.flatMap((each) => {
    if (!each.rounds || (costs.test(metric) && each.metric !== metric)) return [];
    const others = { ...peers, ...(each.beside && { beside: each.beside }) };
    return [measure({ metric: each.metric, unit, better, ours: each.rounds, others })];
  });
}
