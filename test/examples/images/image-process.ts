import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import process from "node:process";

// Runs one image to its end, as a process of its own. With a number it is gone at once, as by a power
// cut, just before it would change the disk for that many times.
const [folder, registry, reference, killAt = "0"] = process.argv.slice(2) as string[];
const home = join(folder!, "home");
let changes = 0;

const changing = ["chmod", "copyFile", "link", "mkdir", "open", "rename", "rm", "symlink"] as const;
const promises = fs.promises as unknown as Record<string, (...given: unknown[]) => unknown>;
for (const name of changing) {
  const real = promises[name]!;
  promises[name] = (...given: unknown[]) => {
    const isReading = name === "open" && (given[1] === "r" || given[1] === undefined);
    const isOurs = given.slice(0, 2).some((path) => String(path).startsWith(home));
    if (isOurs && !isReading && ++changes === Number(killAt)) process.kill(process.pid, "SIGKILL");
    return real.apply(fs.promises, given);
  };
}
syncBuiltinESMExports();

const { startPod } = await import("flotilla");
const { imageFlows } = await import("../../../examples/images/flows/image.ts");
const { openHome } = await import("../../../examples/images/home.ts");

using opened = await openHome(home);
const flows = imageFlows(opened, { registry: registry! });
await using pod = await startPod({
  store: `sqlite:${join(folder!, "runs.db")}`,
  use: [flows.image, flows.download, flows.unpack, flows.activate],
  dataDir: false,
  // So that the next one needn't wait long for what this one had.
  heartbeatMs: 200,
  deadAfterMs: 1_500,
});
const run = await pod.runs.start(flows.image, { reference: reference! }, { key: reference! });
await pod.runs.wait(run);
console.log(`changes: ${changes}`);
