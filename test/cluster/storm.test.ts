import process from "node:process";
import { expect, onTestFinished, test } from "vitest";
import { openCluster } from "./cluster.ts";
import { runClusterStorm } from "./storm.ts";

const seed = Number(process.env["FLOTILLA_CRASH_SEED"] ?? Math.floor(Math.random() * 2 ** 32));
const forMs = 60_000;

test("three pods with NATS between them keep every promise about sessions while pods, servers, Postgres, network, disks and clocks fail", async () => {
  console.log(`FLOTILLA_CRASH_SEED=${seed}`);
  const cluster = await openCluster({ mode: "bus" });
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
  const { violations, mildness, counts } = await runClusterStorm(cluster, { seed, forMs, say });
  console.log({ seed, network: cluster.network.kind, ...counts });
  expect(violations).toEqual([]);
  // Otherwise the storm would have been too mild to show anything.
  expect(mildness).toEqual([]);
}, 600_000);
