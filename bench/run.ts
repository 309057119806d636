import process from "node:process";
import { parseArgs } from "node:util";
import { nearest } from "../src/base/options.ts";
import { temporaryFolder } from "./folder.ts";
import { jsonLines, type Report, table } from "./report.ts";
import { variants } from "./systems/variants.ts";

/**
 * `npm run bench -- <name> [--store sqlite] [--json] [--quick] [--profile <folder>]`
 *
 * A bench is a file beside this one that exports `bench`. Progress goes to standard error, the
 * report alone to standard output.
 */
export type BenchOptions = {
  readonly store: string;
  readonly quick: boolean;
  /** A folder of the run's own, on a real disk, gone afterwards. */
  readonly folder: string;
  /** Where the processes we measure leave their CPU profiles. */
  readonly profile: string | undefined;
  /** Only these kinds of work, these systems, so many rounds, a backlog of so many. */
  readonly only: readonly string[] | undefined;
  readonly systems: readonly string[] | undefined;
  readonly rounds: number | undefined;
  readonly tasks: number | undefined;
  /** Whether the figures are kept for the documentation. */
  readonly save: boolean;
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
};

const works = [
  "enqueue",
  "drain",
  "two-processes",
  "1ms",
  "wakeup",
  "million",
  "snapshot",
  "recover",
  "memory",
];
const systems = variants.map(({ key }) => key);

const options = {
  store: { type: "string", default: "sqlite" },
  json: { type: "boolean", default: false },
  quick: { type: "boolean", default: false },
  profile: { type: "string" },
  only: { type: "string" },
  systems: { type: "string" },
  rounds: { type: "string" },
  tasks: { type: "string" },
  save: { type: "boolean", default: false },
  help: { type: "boolean", default: false },
} as const;

const usage = `usage: npm run bench -- <name> [--store <store>] [--json] [--quick] [--profile <folder>]

  name       ${Object.keys(benches).join(", ")}
  --store    what it runs on: sqlite (default) or postgres
  --json     one object per line, { metric, value, unit, versus }, and nothing else
  --quick    the same work, smaller: ends within 45 s on sqlite, within minutes on postgres
  --profile  writes CPU profiles of what is measured into this folder; on postgres it also says
             which statements the server was busy with

with --store postgres, where other queues are measured side by side:
  --only     some of the work: ${works.join(", ")}
  --systems  some of the systems: ${systems.join(", ")}
  --rounds   how often each system has its turn
  --tasks    how many tasks the backlog of a drain has
  --save     keeps every round in bench/results, of which \`npm run bench -- render\` makes the
             table and the picture of docs/benchmarks.md

  npm run bench -- tasks --store postgres --only drain,wakeup --systems flotilla,limit,graphile-worker --rounds 3
`;

async function main(): Promise<void> {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(signal, () => process.exit(130));
  }
  const { values, name } = parse(process.argv.slice(2));
  if (values.help) return void process.stdout.write(usage);
  const stores = benches[name]!;
  if (!Object.hasOwn(stores, values.store)) refuse("store", values.store, Object.keys(stores));
  const { bench } = await stores[values.store]!();
  const startedMs = performance.now();
  const seconds = () => ((performance.now() - startedMs) / 1_000).toFixed(1).padStart(6);
  const report = await bench({
    store: values.store,
    quick: values.quick,
    folder: temporaryFolder(),
    profile: values.profile,
    only: listed("work", values.only, works),
    systems: listed("system", values.systems, systems),
    rounds: counted("--rounds", values.rounds),
    tasks: counted("--tasks", values.tasks),
    save: values.save,
    late: (share) => values.quick && performance.now() - startedMs > quickMs * share,
    progress: (what) => process.stderr.write(`${seconds()} s  ${what}\n`),
  });
  process.stdout.write(values.json ? jsonLines(report) : `\n${table(report)}`);
}

function parse(args: string[]) {
  const { values, positionals, tokens } = parseArgs({
    args,
    options,
    strict: false,
    allowPositionals: true,
    tokens: true,
  });
  for (const token of tokens) {
    if (token.kind !== "option") continue;
    const option = Object.entries(options).find(([known]) => known === token.name)?.[1];
    if (!option)
      refuse(
        "option",
        `--${token.name}`,
        Object.keys(options).map((each) => `--${each}`),
      );
    if (option.type === "string" && !token.value) fail(`${token.rawName} needs a value`);
    if (option.type === "boolean" && token.value !== undefined) {
      fail(`${token.rawName} takes no value`);
    }
  }
  const [name, ...rest] = positionals;
  const known = values as {
    store: string;
    json: boolean;
    quick: boolean;
    help: boolean;
    profile?: string;
    only?: string;
    systems?: string;
    rounds?: string;
    tasks?: string;
    save: boolean;
  };
  if (known.help) return { values: known, name: "" };
  if (name === undefined) fail(`which bench? There is ${Object.keys(benches).join(", ")}`);
  if (!(name in benches)) refuse("bench", name, Object.keys(benches));
  if (rest.length > 0) fail(`one bench at a time: ${rest.join(" ")} is too much`);
  return { values: known, name };
}

function listed(
  what: string,
  given: string | undefined,
  known: readonly string[],
): string[] | undefined {
  const names = given?.split(",").map((name) => name.trim());
  for (const name of names ?? []) if (!known.includes(name)) refuse(what, name, known);
  return names;
}

function counted(option: string, given: string | undefined): number | undefined {
  if (given === undefined) return undefined;
  const count = Number(given);
  if (!Number.isInteger(count) || count < 1) fail(`${option} needs a whole number from 1`);
  return count;
}

function refuse(what: string, given: string, known: readonly string[]): never {
  const meant = nearest(given, known);
  fail(
    `unknown ${what} ${given}${meant ? `, did you mean ${meant}?` : `: there is ${known.join(", ")}`}`,
  );
}

function fail(message: string): never {
  process.stderr.write(`bench: ${message}\n\n${usage}`);
  process.exit(2);
}

await main().catch((error: unknown) => {
  process.stderr.write(
    `bench: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`,
  );
  process.exit(1);
});
