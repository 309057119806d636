import process from "node:process";
import { expect, onTestFinished, test } from "vitest";
import { type ClusterMode, openCluster } from "./cluster.ts";
import { runClusterStorm } from "./storm.ts";

const seed = Number(process.env["FLOTILLA_CRASH_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const forMs = 40_000;

test("three pods with NATS between them keep every promise about sessions while pods, servers, Postgres, network, disks and clocks fail", async () => {
  await expectKept("bus");
}, 600_000);

test("three pods with their logs on NATS keep every promise about sessions while pods, servers, Postgres, network, disks and clocks fail", async () => {
  await expectKept("all");
}, 600_000);

test("three pods with their logs on NATS keep every promise about sessions while Postgres is away for half a minute, and pods, servers, network, disks and clocks fail meanwhile", async () => {
  await expectKept("all", 30_000);
}, 600_000);

async function expectKept(mode: ClusterMode, awayMs?: number): Promise<void> {
  console.log(`FLOTILLA_CRASH_SEED=${seed}`);
  const cluster = await openCluster({ mode });
  const keep = Boolean(process.env["FLOTILLA_CRASH_KEEP"]);
  onTestFinished(async () => {
    await cluster.close({ keep });
    if (keep) console.log(`kept ${cluster.fleet.folder}`);
  });
  const startedMs = performance.now();
  const seconds = () => ((performance.now() - startedMs) / 1_000).toFixed(1).padStart(6);
  const say = process.env["FLOTILLA_CRASH_VERBOSE"]
    ? (line: string) => console.log(`${seconds()} s  ${line}`)
    : () => {};
  const { violations, mildness, counts } = await runClusterStorm(cluster, {
    seed,
    forMs,
    awayMs,
    say,
  });
  console.log({ seed, mode, network: cluster.network.kind, ...counts });
  expect(violations).toEqual([]);
  // Otherwise the storm would have been too mild to show anything.
  expect(mildness).toEqual([]);
}
