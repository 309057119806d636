/**
 * `npm run soak`: what runs for longer than a test may. `npm run soak -- simulation` runs seeds of the
 * simulation, `npm run soak -- fuzz` sends a server what it shouldn't be sent, `npm run soak -- cluster` is
 * the storm over three NATS servers, three pods and Postgres, `npm run soak -- promote` moves a large store from
 * SQLite to Postgres, to NATS and back, and without such a word it is the storm of the crash suite.
 */
import process from "node:process";

const soaks: Readonly<Record<string, () => Promise<unknown>>> = {
  simulation: () => import("./simulation/soak.ts"),
  fuzz: () => import("./fuzz/soak.ts"),
  cluster: () => import("./cluster/soak.ts"),
  promote: () => import("./promote/soak.ts"),
};
const [, , word = ""] = process.argv;
await (soaks[word] ?? (() => import("./crash/soak.ts")))();
