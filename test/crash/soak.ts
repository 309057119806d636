/**
 * `npm run soak`: the storm of the crash suite, round after round with a fresh seed, until the time
 * is over or a promise is broken. Then it tells the seed, and where everything was kept.
 *
 *   npm run soak -- --minutes 120 --store postgres --seed 7
 *
 * With `--of sessions` it is the storm of servers with sessions. There `--store standby` is a Postgres
 * server with a synchronous standby, which takes its place in the middle of every round.
 *
 * With `--of agents` it is durable agents: processes that are killed and paused at every place, deploys of
 * two releases, and a server that is killed.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { makeBuild } from "../make-build.ts";
import type { Random } from "../../src/base/random.ts";
import { type PostgresServer, startPostgres } from "../postgres/server.ts";
import { openFleet, type Fleet } from "./fleet.ts";
import { monotonicMs } from "./ledger.ts";
import { startChaosProxy } from "./postgres/chaos-proxy.ts";
import { openRoughPlace } from "./postgres/rough.ts";
import { killServer } from "./server-faults.ts";
import { sessionFleetOn } from "./sessions/fleet.ts";
import type { StoreHarm } from "./sessions/nemesis.ts";
import { runSessionStorm } from "./sessions/storm.ts";
import { runAgentMatrix } from "./steps/matrix.ts";
import { runStorm, type Storm } from "./tasks/storm.ts";
import { postgresPlan, serverSettings, sqlitePlan } from "./tasks/storm-plans.ts";
import { postgresStore, sqliteStore } from "./stores.ts";

await makeBuild();

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "60" },
    seed: { type: "string" },
    store: { type: "string", default: "postgres" },
    of: { type: "string", default: "tasks" },
    /** Every fault as it comes. */
    verbose: { type: "boolean", default: false },
  },
});
const minutes = Number(values.minutes);
if (!(minutes > 0)) throw new Error("--minutes takes a number above zero");
const taskKinds = { postgres: postgresRound, sqlite: sqliteRound };
const sessionKinds = {
  postgres: manyServersRound,
  sqlite: oneServerRound,
  standby: failOverRound,
};
const agentKinds = { postgres: agentsOnServerRound, sqlite: agentsOnFileRound };
const kinds = { tasks: taskKinds, sessions: sessionKinds, agents: agentKinds }[values.of];
if (!kinds) throw new Error("--of takes tasks, sessions, agents");
if (!Object.hasOwn(kinds, values.store)) {
  throw new Error(`--store takes ${Object.keys(kinds).join(", ")}`);
}
const firstSeed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 32));
const startedMs = monotonicMs();
const endLimitMs = 120_000;
const round: (seed: number) => Promise<void> = kinds[values.store as keyof typeof kinds];

let rounds = 0;
do {
  const seed = (firstSeed + rounds++) % 2 ** 32;
  say(`round ${rounds}, seed ${seed}`);
  await round(seed);
} while (monotonicMs() - startedMs < minutes * 60_000);
say(`${rounds} rounds, and every promise was kept`);
endWithin("the end of the program").unref();

async function sqliteRound(seed: number): Promise<void> {
  const fleet = await openFleet(sqliteStore);
  await judged(fleet, seed, () => runStorm(fleet, { ...sqlitePlan, seed, say: fault }));
}

async function postgresRound(seed: number): Promise<void> {
  const server = await startPostgres({ settings: serverSettings });
  try {
    const fleet = await openFleet(() => postgresStore(server.url));
    const rough = await openRoughPlace(fleet, server);
    const { common, placeAt } = rough;
    const plan = { ...postgresPlan, seed, common, placeAt, say: fault };
    await judged(fleet, seed, () => runStorm(fleet, plan));
    await inTime("closing what is between pods and server", rough.close());
  } finally {
    await inTime("stopping the server", server.stop());
  }
}

async function oneServerRound(seed: number): Promise<void> {
  const fleet = sessionFleetOn(await openFleet(sqliteStore));
  await judged(fleet, seed, () => runSessionStorm(fleet, { seed, servers: 1, say: fault }));
}

async function manyServersRound(seed: number): Promise<void> {
  const server = await startPostgres();
  try {
    const fleet = sessionFleetOn(await openFleet(() => postgresStore(server.url)));
    const store = { kill: (random: Random) => killServer(server, random) };
    await judged(fleet, seed, () =>
      runSessionStorm(fleet, { seed, servers: 3, store, say: fault }),
    );
  } finally {
    await inTime("stopping the server", server.stop());
  }
}

async function failOverRound(seed: number): Promise<void> {
  const primary = await startPostgres();
  const standby = await primary.startStandby();
  // Nothing that the pods have names two servers, so what stands between turns to the other one.
  const proxy = await startChaosProxy(primary.url);
  let server: PostgresServer = primary;
  const store: StoreHarm = {
    kill: (random) => killServer(server, random),
    async failOver() {
      await primary.kill();
      await standby.promote();
      server = standby;
      proxy.turnTo(standby.url);
    },
  };
  try {
    const fleet = sessionFleetOn(await openFleet(() => postgresStore(proxy.through(primary.url))));
    await judged(fleet, seed, () =>
      runSessionStorm(fleet, { seed, servers: 3, store, say: fault }),
    );
  } finally {
    await inTime("closing the proxy", proxy.close());
    await inTime("stopping the standby", standby.stop());
    await inTime("stopping the primary", primary.stop());
  }
}

async function agentsOnFileRound(seed: number): Promise<void> {
  const fleet = await openFleet(sqliteStore);
  await judged(fleet, seed, () => runAgentMatrix(fleet, { seed, say: fault }));
}

async function agentsOnServerRound(seed: number): Promise<void> {
  const server = await startPostgres();
  try {
    const fleet = await openFleet(() => postgresStore(server.url));
    await judged(fleet, seed, () => runAgentMatrix(fleet, { seed, server, say: fault }));
  } finally {
    await inTime("stopping the server", server.stop());
  }
}

type Judged = Pick<Storm, "violations" | "mildness" | "counts"> & { readonly evidence: unknown };

/** Ends the program at the first broken promise, and keeps what speaks against it. */
async function judged(fleet: Fleet, seed: number, run: () => Promise<Judged>): Promise<void> {
  const { violations, mildness, evidence, counts } = await run().catch(async (error: unknown) => {
    say(`seed ${seed} ended early; ledgers and logs are in ${fleet.folder}`);
    await inTime("closing the pods", fleet.close({ keep: true }));
    throw error;
  });
  say(JSON.stringify(counts));
  if (mildness.length > 0) say(`this round lacked ${mildness.join("; ")}`);
  if (violations.length > 0) {
    writeFileSync(join(fleet.folder, "evidence.json"), JSON.stringify(evidence));
    for (const violation of violations) say(violation);
    say(`seed ${seed} broke promises; ledgers, logs and evidence.json are in ${fleet.folder}`);
    process.exitCode = 1;
  }
  await inTime("closing the pods", fleet.close({ keep: violations.length > 0 }));
  if (violations.length > 0) process.exit();
}

async function inTime(what: string, ending: Promise<void>): Promise<void> {
  const limit = endWithin(what);
  await ending.finally(() => clearTimeout(limit));
}

/** What a round leaves behind must not go on for hours: it is told of, and ends with the program. */
function endWithin(what: string): NodeJS.Timeout {
  return setTimeout(() => {
    const left = process.getActiveResourcesInfo().filter((name) => name !== "Timeout");
    say(`${what} takes more than ${endLimitMs / 1_000} s; there are ${left.join(", ")}`);
    process.exit(1);
  }, endLimitMs);
}

function fault(line: string): void {
  if (values.verbose) say(line);
}

function say(line: string): void {
  const seconds = ((monotonicMs() - startedMs) / 1_000).toFixed(1);
  console.log(`${seconds.padStart(8)} s  ${line}`);
}
