/**
 * `npm run soak -- cluster`: the storm over a cluster, round after round with a fresh seed, until the time is
 * over or a promise is broken. Then it tells the seed, and where everything was kept.
 *
 *   npm run soak -- cluster --minutes 120 --seed 7 --mode bus
 *   npm run soak -- cluster --minutes 120 --mode all --away 60
 *
 * `--mode move` has the logs go to NATS, back to Postgres, and there again all the while.
 *
 * With the name of a mutation it takes out that fence, in a copy of the source, and says whether a checker
 * notices.
 *
 *   npm run soak -- cluster --mode all --mutation "stream: wrong last sequence is a fence" --minutes 10
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { pauseFor } from "../crash/until.ts";
import { makeBuild } from "../make-build.ts";
import { getParts, missing, parts } from "../parts.ts";
import { type Cluster, type ClusterMode, openCluster } from "./cluster.ts";
import { runClusterStorm } from "./storm.ts";

/** What it ends with where a promise was broken. Anything else that fails ends with 1. */
const brokenCode = 3;
const lookMs = 5_000;
const modes: readonly ClusterMode[] = ["bus", "all", "move"];
const { values } = parseArgs({
  args: process.argv.slice(3),
  options: {
    minutes: { type: "string", default: "60" },
    seed: { type: "string" },
    /** What pods use NATS for. */
    mode: { type: "string", default: "bus" },
    /** How long each storm goes on, in seconds. */
    seconds: { type: "string", default: "120" },
    /** For how many seconds Postgres is away, in place of being killed and paused. With `--mode all`. */
    away: { type: "string" },
    /** A fence that is taken out, by its name in the lists of `test/simulation`. */
    mutation: { type: "string" },
    /** Every fault as it comes. */
    verbose: { type: "boolean", default: false },
  },
});
const [minutes, seconds] = [Number(values.minutes), Number(values.seconds)];
if (!(minutes > 0)) throw new Error("--minutes takes a number above zero");
if (!(seconds > 0)) throw new Error("--seconds takes a number above zero");
const mode = modes.find((each) => each === values.mode);
if (!mode) throw new Error(`--mode takes ${modes.join(", ")}`);
const awayMs = values.away === undefined ? undefined : 1_000 * Number(values.away);
if (awayMs !== undefined && !(awayMs > 0 && mode === "all")) {
  throw new Error("--away takes a number above zero, with --mode all");
}

class BrokenChain extends Error {}

const needed = [parts.postgres, parts.faketime, parts.nats, parts.ip, parts.nft];
const failure = getParts(needed);
const absent = needed.filter((each) => each.find() === undefined);
if (absent.length > 0) throw missing(absent, failure);
const startedMs = performance.now();
if (values.mutation !== undefined) process.exit(await runMutated(values.mutation));
await makeBuild();

const firstSeed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 32));
let rounds = 0;
do {
  const seed = (firstSeed + rounds++) % 2 ** 32;
  say(`round ${rounds}, seed ${seed}`);
  await round(seed, mode);
} while (performance.now() - startedMs < minutes * 60_000);
say(`${rounds} rounds, and every promise was kept`);
process.exit(0);

async function round(seed: number, mode: ClusterMode): Promise<void> {
  const cluster = await openCluster({ mode });
  const { folder } = cluster.fleet;
  let code = brokenCode;
  try {
    const saying = values.verbose ? say : () => {};
    const plan = { seed, forMs: seconds * 1_000, awayMs, say: saying };
    const ended = await Promise.race([runClusterStorm(cluster, plan), brokenChain(cluster)]);
    if (typeof ended === "string") throw new BrokenChain(ended);
    const { violations, mildness, counts, evidence } = ended;
    say(JSON.stringify(counts));
    if (mildness.length > 0) say(`this round lacked ${mildness.join("; ")}`);
    if (violations.length === 0) return await cluster.close();
    writeFileSync(join(folder, "evidence.json"), JSON.stringify(evidence));
    for (const violation of violations) say(violation);
    say(`seed ${seed} broke promises; ledgers, logs and evidence.json are in ${folder}`);
  } catch (error) {
    code = error instanceof BrokenChain ? brokenCode : 1;
    say(`seed ${seed} ended early; ledgers and logs are in ${folder}: ${String(error)}`);
  }
  await cluster.close({ keep: true });
  process.exit(code);
}

/**
 * What a pod says of a log whose messages don't follow from each other. No fault that a storm makes excuses
 * that, and the storm itself would wait for such a log in vain.
 */
async function brokenChain({ fleet }: Cluster): Promise<string> {
  for (;;) {
    await pauseFor(lookMs);
    for (const { error } of fleet.logged("session log pass failed, retrying")) {
      if (error?.includes("the chain ends before")) return error;
    }
  }
}

/** Soaks a copy of the repository that lacks a fence. Returns 0 if that was noticed. */
async function runMutated(name: string): Promise<number> {
  // The lists quote the source, so that a copy without one of the fences can't load them.
  const { allMutations, copyWith, misfits } = await import("../simulation/mutants.ts");
  const mutation = allMutations.find((each) => each.name === name);
  if (!mutation) throw new Error(`--mutation takes a name from test/simulation: not ${name}`);
  const [misfit] = misfits(mutation);
  if (misfit !== undefined) throw new Error(misfit);
  const configs = ["package.json", "tsconfig.json", "tsconfig.base.json"];
  using copy = copyWith(mutation.edits, ["src", "test", "build", "examples", ...configs]);
  const given = process.argv.slice(3).filter((each, at, all) => {
    const isOption = each === "--mutation" || each.startsWith("--mutation=");
    return !isOption && all[at - 1] !== "--mutation";
  });
  const soak = ["--conditions=flotilla:source", "test/soak.ts", "cluster", ...given];
  const child = spawn(process.execPath, soak, { cwd: copy.folder, stdio: "inherit" });
  const [code] = (await once(child, "exit")) as [number | null];
  if (code === brokenCode) say(`noticed: ${name}`);
  else say(code === 0 ? `NOT noticed: ${name}` : `not shown, because a round failed: ${name}`);
  return code === brokenCode ? 0 : 1;
}

function say(line: string): void {
  const past = ((performance.now() - startedMs) / 1_000).toFixed(1);
  console.log(`${past.padStart(8)} s  ${line}`);
}
