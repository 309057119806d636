import { availableParallelism, cpus } from "node:os";
import process from "node:process";
import { type Measure, measure, type Report } from "./report.ts";
import type { BenchOptions } from "./run.ts";
import { startBenchPostgres } from "./servers/postgres.ts";
import type { Server } from "./servers/server.ts";
import type { SideBySide } from "./side-by-side/bench.ts";
import { type DrainWork, measureDrain } from "./side-by-side/drain.ts";
import type { Work } from "./side-by-side/figures.ts";
import { measureWakeup } from "./side-by-side/wakeup.ts";
import { type ServerKind, variants } from "./systems/variants.ts";

const sizes = {
  full: { rounds: 5, tasks: 100_000, finished: 1_000_000, cutMs: 8_000, wakeups: 250 },
  quick: { rounds: 1, tasks: 16_000, finished: 100_000, cutMs: 3_000, wakeups: 100 },
};

/** Tasks on Postgres, side by side with other queues and with what bare `pg` can do. */
export async function bench(options: BenchOptions): Promise<Report> {
  const size = options.quick ? sizes.quick : sizes.full;
  const taking = variants.filter(({ key }) => options.systems?.includes(key) ?? true);
  const rounds = options.rounds ?? size.rounds;
  const servers: Partial<Record<ServerKind, Server>> = {};
  servers.postgres = await startBenchPostgres({ counting: options.profile !== undefined });
  options.progress(servers.postgres.about);
  const side: SideBySide = {
    options,
    servers,
    rounds,
    only: (keys) => taking.filter(({ key }) => keys.includes(key)),
  };
  const everybody = taking.map(({ key }) => key);
  const best = taking.filter(({ defaults }) => !defaults).map(({ key }) => key);
  const ofPostgres = taking
    .filter(({ server, defaults }) => server === "postgres" && !defaults)
    .map(({ key }) => key);
  const drain = { tasks: options.tasks ?? size.tasks, cutMs: size.cutMs };
  const drains: Record<string, DrainWork> = {
    drain: { metric: "tasks.drain", keys: everybody, ...drain },
    "two-processes": { metric: "tasks.drain.two_processes", keys: best, processes: 2, ...drain },
    "1ms": { metric: "tasks.drain.of_1ms", keys: everybody, taskMs: 1, ...drain },
    million: {
      metric: "tasks.drain.after_million",
      keys: ["flotilla", "limit"],
      finished: size.finished,
      ...drain,
    },
    snapshot: {
      metric: "tasks.drain.snapshot_held",
      keys: ofPostgres,
      snapshotHeld: true,
      ...drain,
    },
  };
  const works: Work[] = [];
  for (const [name, work] of Object.entries(drains)) {
    if (wanted(options, name)) works.push(...(await measureDrain(side, work)));
  }
  if (wanted(options, "wakeup")) {
    works.push(...(await measureWakeup(side, { keys: everybody, tasks: size.wakeups })));
  }
  for (const server of Object.values(servers)) await server.stop();
  return {
    measures: works.flatMap(measuresOf),
    notes: [
      ...Object.values(servers).map((server) => server.about),
      ...taking.map(({ key, about }) => `${key}: ${about}`),
      `Node ${process.version}, ${availableParallelism()} cores, ${cpus()[0]?.model ?? "unknown processor"}`,
    ],
  };
}

function wanted({ only }: BenchOptions, name: string): boolean {
  return only?.includes(name) ?? true;
}

/** Ours against each of the others. The default slots have a metric of their own. */
function measuresOf({ metric, unit, better, figures }: Work): Measure[] {
  const rounds = (key: string) => figures[key]?.map(({ value }) => value);
  const others = Object.fromEntries(
    Object.keys(figures)
      .filter((key) => !key.startsWith("flotilla"))
      .map((key) => [key, rounds(key)!]),
  );
  const found: Measure[] = [];
  const best = rounds("flotilla");
  const byDefault = rounds("flotilla-default");
  if (best) found.push(measure({ metric, unit, better, ours: best, others }));
  if (byDefault) {
    found.push(
      measure({ metric: `${metric}.default_slots`, unit, better, ours: byDefault, others }),
    );
  }
  return found;
}
