/**
 * `npm run soak -- fuzz`: requests and conversations by a seed, for as long as it is told. Every fault comes
 * with the request, and with the command that makes all requests up to it again.
 *
 *   npm run soak -- fuzz --seconds 600 --seed 7 --store postgres
 */
import process from "node:process";
import { parseArgs } from "node:util";
import { openFleet } from "../crash/fleet.ts";
import { postgresStore, sqliteStore } from "../crash/stores.ts";
import { makeBuild } from "../make-build.ts";
import { startPostgres } from "../postgres/server.ts";
import { type FuzzReport, runFuzz } from "./fuzz.ts";

const { values } = parseArgs({
  args: process.argv.slice(3),
  options: {
    /** Default 600, or as long as `--requests` takes. */
    seconds: { type: "string" },
    /** How many requests at most, to replay them. */
    requests: { type: "string" },
    seed: { type: "string" },
    store: { type: "string", default: "sqlite" },
  },
});
const requests = values.requests === undefined ? Infinity : numberOf("--requests", values.requests);
const seconds = numberOf("--seconds", values.seconds ?? (values.requests ? "86400" : "600"));
const seed =
  values.seed === undefined ? Math.floor(Math.random() * 2 ** 32) : numberOf("--seed", values.seed);
const runs = { sqlite: onFile, postgres: onServer };
if (!Object.hasOwn(runs, values.store)) throw new Error("--store takes sqlite, postgres");

await makeBuild();
console.log(`seed ${seed}`);
const report = await runs[values.store as keyof typeof runs]();
const { violations, ...counts } = report;
console.log(JSON.stringify(counts, null, 2));
for (const violation of violations) console.log(violation);
console.log(`${counts.requests} requests, ${violations.length} faults`);
process.exit(violations.length > 0 ? 1 : 0);

async function onFile(): Promise<FuzzReport> {
  return run(await openFleet(sqliteStore));
}

async function onServer(): Promise<FuzzReport> {
  const server = await startPostgres();
  try {
    return await run(await openFleet(() => postgresStore(server.url)));
  } finally {
    await server.stop();
  }
}

async function run(fleet: Awaited<ReturnType<typeof openFleet>>): Promise<FuzzReport> {
  const found = await runFuzz(fleet, {
    seed,
    seconds,
    requests,
    say: (line) => console.log(line),
  });
  await fleet.close({ keep: found.violations.length > 0 });
  return found;
}

function numberOf(flag: string, text: string): number {
  const number = Number(text);
  if (Number.isFinite(number) && number >= 0) return number;
  throw new Error(`${flag} takes a number, not ${text}`);
}
