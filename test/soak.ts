/**
 * `npm run soak`: what runs for longer than a test may. `npm run soak -- simulation` runs seeds of the
 * simulation, `npm run soak -- fuzz` sends a server what it shouldn't be sent, and without such a word it is
 * the storm of the crash suite.
 */
import process from "node:process";

const [, , word] = process.argv;
if (word === "simulation") await import("./simulation/soak.ts");
else await (word === "fuzz" ? import("./fuzz/soak.ts") : import("./crash/soak.ts"));
