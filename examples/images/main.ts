// Container images on plain directories: downloaded from a registry over a bad line, unpacked with care,
// and activated as snapshots. Kill it at any moment and start it again: it goes on where it was.
//
//   node --conditions=flotilla:source examples/images/main.ts [folder]
import { mkdirSync, readFileSync } from "node:fs";
import { join, resolve } from "node:path";
import process from "node:process";
import { type Pod, startPod } from "flotilla";
import { imageFlows, type ImageFlows } from "./flows/image.ts";
import { type Home, openHome } from "./home.ts";
import { serveHealth } from "./parts/health.ts";
import { startRegistry } from "./registry/registry.ts";
import { sampleLayers } from "./sample.ts";
import { reconcile } from "./store/reconcile.ts";
import { packLayer } from "./tar/pack.ts";

const folder = resolve(process.argv[2] ?? "images-example");
mkdirSync(folder, { recursive: true });

await using registry = await startRegistry();
using home = await openHome(join(folder, "home"));
await using health = await serveHealth(home.health);
const flows = imageFlows(home, { registry: registry.url });
await using pod = await startPod({
  store: `sqlite:${join(folder, "runs.db")}`,
  use: [flows.image, flows.download, flows.unpack, flows.activate],
});

const { layers } = registry.push("demo/sample:1", sampleLayers("1"));
const large = layers[1]!.digest;
registry.fail(large, { type: "cut", afterBytes: 90_000 }, { type: "status", status: 503 });
console.log("an image over a bad line:");
await show(pod, flows, home, "demo/sample:1");

console.log("the same again, which is there:");
await show(pod, flows, home, "demo/sample:1");

registry.push("demo/sample:2", sampleLayers("2"));
console.log("the next version, which shares a layer:");
await show(pod, flows, home, "demo/sample:2");

registry.push("demo/evil:1", [packLayer([{ path: "../../etc/cron.d/evil", content: "x" }])]);
console.log("an image that would write outside of its folder:");
await show(pod, flows, home, "demo/evil:1");

console.log(`health: ${(await fetch(health.url)).status}`);
console.log(`orphans: ${(await reconcile(home.places, home.metadata)).length}`);

/** Runs the flow for one image, and tells what it and its children did. */
async function show(
  pod: Pod,
  { image }: ImageFlows,
  { places }: Home,
  reference: string,
): Promise<void> {
  const run = await pod.runs.start(image, { reference });
  const result = await pod.runs.wait(run).catch(() => undefined);
  const { runs: children } = await pod.runs.list({ parent: run.runId });
  const order = ["download", "unpack", "activate"];
  for (const child of children.toSorted((a, b) => order.indexOf(a.flow) - order.indexOf(b.flow))) {
    const events = await pod.runs.history(child.runId);
    const done = events
      .filter(({ transition }) => transition !== null)
      .map(({ type, transition }) => `${transition} ${type}`);
    console.log(`  ${child.flow} ${child.status}: ${done.join(", ")}`);
    if (child.error) console.log(`    ${child.error.message}`);
  }
  if (!result) return console.log(`  ${reference} isn't active`);
  const version = readFileSync(join(places.snapshot(result.snapshotId), "app/version"), "utf8");
  console.log(`  ${reference} is active, with version ${version.trim()} in it`);
}
