import process from "node:process";
import { type Arguments, readArguments } from "./arguments.ts";
import { temporaryFolder } from "./folder.ts";
import { jsonLines, type Report, table } from "./report.ts";

/**
 * `npm run bench -- <name> [--store sqlite|postgres] [--json] [--quick] [--profile <folder>] [--beside <checkout>]`
 *
 * A bench is a file beside this one that exports `bench`. Progress goes to standard error, the
 * report alone to standard output.
 */
export type BenchOptions = Omit<Arguments, "name" | "json"> & {
  /** A folder of the run's own, on a real disk, gone afterwards. */
  readonly folder: string;
  readonly progress: (what: string) => void;
  /** Whether so much of the time of a short run has passed that another round must not begin. */
  readonly late: (share: number) => boolean;
};

// A short run is for a machine that is busy with other things too.
const quickMs = 45_000;

export type Bench = (options: BenchOptions) => Promise<Report>;

type Load = () => Promise<{ bench: Bench }>;

const benches: Readonly<Record<string, Readonly<Record<string, Load>>>> = {
  tasks: {
    sqlite: () => import("./tasks.ts"),
    postgres: () => import("./tasks-on-postgres.ts"),
  },
  // It runs in virtual time, on a store in memory.
  throttle: { sqlite: () => import("./throttle.ts") },
  flows: { postgres: () => import("./flows.ts"), sqlite: () => import("./flows.ts") },
  steps: { postgres: () => import("./steps.ts"), sqlite: () => import("./steps.ts") },
  sessions: { sqlite: () => import("./sessions.ts"), postgres: () => import("./sessions.ts") },
  cluster: { postgres: () => import("./cluster.ts") },
  agents: { sqlite: () => import("./agents.ts"), postgres: () => import("./agents.ts") },
  server: { sqlite: () => import("./server.ts"), postgres: () => import("./server.ts") },
  dashboard: { sqlite: () => import("./dashboard.ts"), postgres: () => import("./dashboard.ts") },
};

async function main(): Promise<void> {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(signal, () => process.exit(130));
  }
  const asked = readArguments(process.argv.slice(2), [...Object.keys(benches), "render"]);
  if (asked === "help") return;
  const { name, store, quick } = asked;
  if (name === "render") {
    const { renderDocs } = await import("./render/docs.ts");
    for (const path of renderDocs()) process.stderr.write(`wrote ${path}\n`);
    return;
  }
  const load = benches[name]![store];
  if (!load) {
    const known = Object.keys(benches[name]!).join(", ");
    process.stderr.write(`bench: unknown store ${store}: there is ${known}\n`);
    process.exit(2);
  }
  const { bench } = await load();
  const startedMs = performance.now();
  const seconds = () => ((performance.now() - startedMs) / 1_000).toFixed(1).padStart(6);
  const report = await bench({
    ...asked,
    folder: temporaryFolder(),
    late: (share) => quick && performance.now() - startedMs > quickMs * share,
    progress: (what) => process.stderr.write(`${seconds()} s  ${what}\n`),
  });
  // Work that was given up may still wait for what never comes.
  process.stdout.write(asked.json ? jsonLines(report) : `\n${table(report)}`, () => process.exit());
}

await main().catch((error: unknown) => {
  process.stderr.write(
    `bench: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  );
  process.exit(1);
});
