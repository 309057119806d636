import { resolve } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { nearest } from "../src/base/options.ts";
import { whyNotBeside } from "./beside.ts";
import { flowKeys } from "./flows/variants.ts";
import { stepKeys } from "./steps/variants.ts";
import { variants } from "./systems/variants.ts";
import { contenderNames } from "./throttle/contenders.ts";
import { allScenarios } from "./throttle/scenarios.ts";

/** The command line. A wrong one ends the process with a sentence. */
export type Arguments = {
  readonly name: string;
  readonly store: string;
  readonly json: boolean;
  readonly quick: boolean;
  readonly save: boolean;
  readonly profile: string | undefined;
  readonly only: readonly string[] | undefined;
  readonly systems: readonly string[] | undefined;
  readonly rounds: number | undefined;
  readonly tasks: number | undefined;
  /** How many logs a store of sessions has. */
  readonly logs: number | undefined;
  /** How many entries the audit has whose pages are read. */
  readonly entries: number | undefined;
  /** How many tasks the store has whose pages are opened. */
  readonly rows: number | undefined;
  /** How long a busy page is looked at. */
  readonly minutes: number | undefined;
  /** The schema of Absurd, which its package doesn't carry. */
  readonly absurd: string | undefined;
  /** Another checkout, which is measured as one more system. */
  readonly beside: string | undefined;
};

const options = {
  store: { type: "string" },
  json: { type: "boolean", default: false },
  quick: { type: "boolean", default: false },
  profile: { type: "string" },
  only: { type: "string" },
  systems: { type: "string" },
  rounds: { type: "string" },
  tasks: { type: "string" },
  logs: { type: "string" },
  entries: { type: "string" },
  rows: { type: "string" },
  minutes: { type: "string" },
  absurd: { type: "string" },
  beside: { type: "string" },
  save: { type: "boolean", default: false },
  help: { type: "boolean", default: false },
} as const;

const sqliteWorks = [
  "enqueue",
  "drain",
  "wakeup",
  "here",
  "idle",
  "recover",
  "memory",
  "keys",
  "limits",
  "schedules",
];
const works = [
  "enqueue",
  "drain",
  "two-processes",
  "1ms",
  "wakeup",
  "here",
  "trigger",
  "idle",
  "million",
  "codec",
  "feed",
  "snapshot",
  "recover",
  "memory",
  "keys",
  "limits",
];
const flowWorks = ["one-run", "hundred-runs", "thousand-runs", "resume"];
const stepWorks = ["one", "hundred", "thousand", "resume", "depth", "replay", "bytes"];
const sessionWorks = [
  "acked",
  "append",
  "fanout",
  "forks",
  "replay",
  "idle",
  "turns",
  "restart",
  "pods",
  "pods-acked",
  "growth",
];
const clusterWorks = [
  "append",
  "acked",
  "replay",
  "hop",
  "archive",
  "idle",
  "deploy",
  "promote",
  "away",
  "failover",
];
const serverWorks = ["requests", "bulk", "acts", "audit"];
const dashboardWorks = ["answers", "loads", "events", "frames", "drain"];
const agentWorks = ["call", "turns", "bytes", "resume", "silence"];
const systems = variants.map(({ key }) => key);
const played = allScenarios.map(({ name }) => name);
/** What has no comparison with another checkout. */
const notBeside = [
  "codec",
  "feed",
  "here",
  "trigger",
  "recover",
  "memory",
  "keys",
  "limits",
  "schedules",
  "idle",
  "pods",
  "pods-acked",
  "growth",
];
/** What only a comparison with others knows of. */
const ofComparison = ["systems", "tasks"] as const;

function usageOf(names: readonly string[]): string {
  return `usage: npm run bench -- <name> [--store <store>] [--json] [--quick] [--profile <folder>]

  name       ${names.join(", ")}; render puts saved figures into docs/benchmarks.md
  --store    what it runs on: sqlite (default) or postgres (default of flows, steps
             and cluster)
  --json     one object per line, { metric, value, unit, versus }, and nothing else
  --quick    the same work, smaller: ends within 45 s on sqlite, within minutes on postgres
  --only     some of the work: ${sqliteWorks.join(", ")};
             on postgres ${works.join(", ")}
  --profile  writes CPU profiles of what is measured into this folder; on postgres it also says
             which statements the server was busy with
  --beside   another checkout, with its packages installed: its programs take turns with ours in
             every round, as the system "beside"; peers only where --systems names them.
             Not for throttle, server, dashboard and cluster, and not for ${notBeside.join(", ")}
  --rounds   how often each system has its turn
  --save     keeps the figures in bench/results, for render

with --store postgres, where other queues are measured side by side:
  --systems  some of the systems: ${systems.join(", ")}
  --tasks    how many tasks the backlog of a drain has

  npm run bench -- tasks --store postgres --only drain,wakeup --systems flotilla,limit,graphile-worker --rounds 3

with throttle, which simulates a downstream that fleets call:
  --only     some of the scenarios: ${played.join(", ")}
  --systems  some of the contenders: ${contenderNames.join(", ")}
  --save     keeps the figures in bench/results, and puts them and the curves into docs

with flows, beside others that keep runs over a crash:
  --only     some of the work: ${flowWorks.join(", ")}
  --systems  some of the systems: ${flowKeys.join(", ")}
  --tasks    how many runs are left open to be resumed
  --save     keeps every round in bench/results, for render

with steps, beside others that store what code has done:
  --only     some of the work: ${stepWorks.join(", ")}
  --systems  some of the systems: ${stepKeys.join(", ")}
  --absurd   the file with the schema of Absurd; without it, Absurd is left out
  --tasks    how many tasks are left open to be resumed
  --save     keeps every round in bench/results, for render

with sessions, over sockets from another process:
  --only     some of the work: ${sessionWorks.join(", ")}
  --tasks    how many sessions the store has when its server is started again
  --logs     how many logs the store has, a power of two, in place of the default
  --save     keeps every round in bench/results, for render

with cluster, on three servers of NATS that flush, beside those servers alone:
  --only     some of the work: ${clusterWorks.join(", ")}
  --logs     how many logs there are, a power of two, in place of the default
  --save     keeps every round in bench/results, for render

with agents, of ten calls and ten tools, beside the same agent without durable:
  --only     some of the work: ${agentWorks.join(", ")} (silence on postgres alone)
  --save     keeps every round in bench/results, for render

with server, beside the same server without keys, redaction and audit:
  --only     some of the work: ${serverWorks.join(", ")}
  --tasks    how many tasks one act of bulk changes
  --entries  how many entries the audit has
  --save     keeps every round in bench/results, for render

with dashboard, in Chromium, on a store with a million tasks and a server with one pod:
  --only     some of the work: ${dashboardWorks.join(", ")}
  --rows     how many tasks the store has; a tenth as many runs, a hundredth as many sessions
  --minutes  how long the overview is looked at while 500 tasks a second come and go
  --tasks    how many tasks the backlog of a drain has
  --save     keeps the figures in bench/results, for render
`;
}

/** Reads the command line, given the benches that there are. */
export function readArguments(args: string[], names: readonly string[]): Arguments | "help" {
  const fail = (message: string): never => {
    process.stderr.write(`bench: ${message}\n\n${usageOf(names)}`);
    process.exit(2);
  };
  const refuse = (what: string, given: string, known: readonly string[]): never => {
    const meant = nearest(given, known);
    const help = meant ? `, did you mean ${meant}?` : `: there is ${known.join(", ")}`;
    return fail(`unknown ${what} ${given}${help}`);
  };
  const listed = (what: string, given: string | undefined, known: readonly string[]) => {
    const all = given?.split(",").map((each) => each.trim());
    for (const each of all ?? []) if (!known.includes(each)) refuse(what, each, known);
    return all;
  };
  const counted = (option: string, given: string | undefined) => {
    if (given === undefined) return undefined;
    const count = Number(given);
    return Number.isInteger(count) && count > 0
      ? count
      : fail(`${option} needs a whole number from 1`);
  };

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
    if (!option) {
      const known = Object.keys(options).map((each) => `--${each}`);
      return refuse("option", `--${token.name}`, known);
    }
    if (option.type === "string" && !token.value) fail(`${token.rawName} needs a value`);
    if (option.type === "boolean" && token.value !== undefined) {
      fail(`${token.rawName} takes no value`);
    }
  }
  if (values.help) {
    process.stdout.write(usageOf(names));
    return "help";
  }
  const [name, ...rest] = positionals;
  if (name === undefined) return fail(`which bench? There is ${names.join(", ")}`);
  if (!names.includes(name)) refuse("bench", name, names);
  if (rest.length > 0) fail(`one bench at a time: ${rest.join(" ")} is too much`);
  const text = (key: keyof typeof options) => values[key] as string | undefined;
  const simulates = name === "throttle";
  const flows = name === "flows" || name === "steps";
  const clustered = name === "cluster";
  const compares =
    flows || clustered || ["sessions", "agents", "server", "dashboard"].includes(name);
  const store = text("store") ?? (flows || clustered ? "postgres" : "sqlite");
  if (store === "sqlite" && !simulates && !compares) {
    const vain = ofComparison.find((key) => values[key]);
    if (vain) fail(`--${vain} is for --store postgres`);
  }
  const beside = text("beside") === undefined ? undefined : resolve(text("beside")!);
  const hindrance =
    beside && ["throttle", "server", "dashboard", "cluster"].includes(name)
      ? `${name} has no --beside`
      : beside && whyNotBeside(beside);
  if (hindrance) fail(hindrance);
  if (beside && values.save) fail("--save keeps what is published, which has nothing beside it");
  const kinds = kindsOf(name, store);
  const uncompared =
    beside &&
    text("only")
      ?.split(",")
      .find((each) => notBeside.includes(each.trim()));
  if (uncompared) fail(`${uncompared} isn't compared with another checkout`);
  return {
    beside,
    name,
    store,
    json: values.json === true,
    quick: values.quick === true,
    save: values.save === true,
    profile: text("profile"),
    only: listed(kinds.work, text("only"), kinds.works),
    systems: listed(kinds.system, text("systems"), kinds.systems),
    rounds: counted("--rounds", text("rounds")),
    tasks: counted("--tasks", text("tasks")),
    logs: counted("--logs", text("logs")),
    entries: counted("--entries", text("entries")),
    rows: counted("--rows", text("rows")),
    minutes: counted("--minutes", text("minutes")),
    absurd: text("absurd") === undefined ? undefined : resolve(text("absurd")!),
  };
}

/** What there is to choose from, and what it is called. */
function kindsOf(name: string, store: string) {
  if (name === "throttle") {
    return { work: "scenario", works: played, system: "contender", systems: contenderNames };
  }
  if (name === "flows") {
    return { work: "work", works: flowWorks, system: "system", systems: flowKeys };
  }
  if (name === "steps") {
    return { work: "work", works: stepWorks, system: "system", systems: stepKeys };
  }
  if (name === "sessions") {
    return { work: "work", works: sessionWorks, system: "system", systems: [] };
  }
  if (name === "cluster") {
    return { work: "work", works: clusterWorks, system: "system", systems: [] };
  }
  if (name === "server") {
    return { work: "work", works: serverWorks, system: "system", systems: [] };
  }
  if (name === "dashboard") {
    return { work: "work", works: dashboardWorks, system: "system", systems: [] };
  }
  if (name === "agents") {
    return { work: "work", works: agentWorks, system: "system", systems: [] };
  }
  return {
    work: "work",
    works: store === "sqlite" ? sqliteWorks : works,
    system: "system",
    systems,
  };
}
