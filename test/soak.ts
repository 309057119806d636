/**
 * `npm run soak`: what runs for longer than a test may. `npm run soak -- simulation` runs seeds of the
 * simulation, and without that word it is the storm of the crash suite.
 */
import process from "node:process";

await (process.argv[2] === "simulation"
  ? import("./simulation/soak.ts")
  : import("./crash/soak.ts"));
