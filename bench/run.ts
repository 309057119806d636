import process from "node:process";
import { parseArgs } from "node:util";
import { nearest } from "../src/base/options.ts";
import { temporaryFolder } from "./folder.ts";
import { jsonLines, type Report, table } from "./report.ts";

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
  readonly progress: (what: string) => void;
  /** Whether so much of the time of a short run has passed that another round must not begin. */
  readonly late: (share: number) => boolean;
};

// A short run is for a machine that is busy with other things too.
const quickMs = 45_000;

export type Bench = (options: BenchOptions) => Promise<Report>;

const benches: Readonly<
  Record<string, { stores: string[]; load: () => Promise<{ bench: Bench }> }>
> = {
  tasks: { stores: ["sqlite"], load: () => import("./tasks.ts") },
};

const options = {
  store: { type: "string", default: "sqlite" },
  json: { type: "boolean", default: false },
  quick: { type: "boolean", default: false },
  profile: { type: "string" },
  help: { type: "boolean", default: false },
} as const;

const usage = `usage: npm run bench -- <name> [--store <store>] [--json] [--quick] [--profile <folder>]

  name       ${Object.keys(benches).join(", ")}
  --store    what it runs on: sqlite (default)
  --json     one object per line, { metric, value, unit, versus }, and nothing else
  --quick    the same work, smaller: ends within 45 s
  --profile  writes CPU profiles of what is measured into this folder
`;

async function main(): Promise<void> {
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(signal, () => process.exit(130));
  }
  const { values, name } = parse(process.argv.slice(2));
  if (values.help) return void process.stdout.write(usage);
  const { stores, load } = benches[name]!;
  if (!stores.includes(values.store)) refuse("store", values.store, stores);
  const { bench } = await load();
  const startedMs = performance.now();
  const seconds = () => ((performance.now() - startedMs) / 1_000).toFixed(1).padStart(6);
  const report = await bench({
    store: values.store,
    quick: values.quick,
    folder: temporaryFolder(),
    profile: values.profile,
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
  };
  if (known.help) return { values: known, name: "" };
  if (name === undefined) fail(`which bench? There is ${Object.keys(benches).join(", ")}`);
  if (!(name in benches)) refuse("bench", name, Object.keys(benches));
  if (rest.length > 0) fail(`one bench at a time: ${rest.join(" ")} is too much`);
  return { values: known, name };
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
