/**
 * `npm run soak -- cluster`: the storm over a cluster, round after round with a fresh seed, until the time is
 * over or a promise is broken. Then it tells the seed, and where everything was kept.
 *
 *   npm run soak -- cluster --minutes 120 --seed 7 --mode bus
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { makeBuild } from "../make-build.ts";
import { getParts, missing, parts } from "../parts.ts";
import { type ClusterMode, openCluster } from "./cluster.ts";
import { runClusterStorm } from "./storm.ts";

const modes: readonly ClusterMode[] = ["bus", "all"];
const { values } = parseArgs({
  args: process.argv.slice(3),
  options: {
    minutes: { type: "string", default: "60" },
    seed: { type: "string" },
    /** What pods use NATS for. */
    mode: { type: "string", default: "bus" },
    /** How long each storm goes on, in seconds. */
    seconds: { type: "string", default: "120" },
    /** Every fault as it comes. */
    verbose: { type: "boolean", default: false },
  },
});
const [minutes, seconds] = [Number(values.minutes), Number(values.seconds)];
if (!(minutes > 0)) throw new Error("--minutes takes a number above zero");
if (!(seconds > 0)) throw new Error("--seconds takes a number above zero");
const mode = modes.find((each) => each === values.mode);
if (!mode) throw new Error(`--mode takes ${modes.join(", ")}`);

const needed = [parts.postgres, parts.faketime, parts.nats, parts.ip, parts.nft];
const failure = getParts(needed);
const absent = needed.filter((each) => each.find() === undefined);
if (absent.length > 0) throw missing(absent, failure);
await makeBuild();

const firstSeed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 32));
const startedMs = performance.now();
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
  try {
    const plan = { seed, forMs: seconds * 1_000, say: values.verbose ? say : () => {} };
    const { violations, mildness, counts, evidence } = await runClusterStorm(cluster, plan);
    say(JSON.stringify(counts));
    if (mildness.length > 0) say(`this round lacked ${mildness.join("; ")}`);
    if (violations.length === 0) return await cluster.close();
    writeFileSync(join(folder, "evidence.json"), JSON.stringify(evidence));
    for (const violation of violations) say(violation);
    say(`seed ${seed} broke promises; ledgers, logs and evidence.json are in ${folder}`);
  } catch (error) {
    say(`seed ${seed} ended early; ledgers and logs are in ${folder}: ${String(error)}`);
  }
  await cluster.close({ keep: true });
  process.exit(1);
}

function say(line: string): void {
  const past = ((performance.now() - startedMs) / 1_000).toFixed(1);
  console.log(`${past.padStart(8)} s  ${line}`);
}
