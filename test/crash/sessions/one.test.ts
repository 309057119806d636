import { test } from "vitest";
import { createSessionFleet, expectKept, sessionSeed } from "./harness.ts";
import { runSessionStorm } from "./storm.ts";

test("on sqlite, one server that is killed, paused and restarted loses nothing that it has acked, and answers everything", async () => {
  console.log(`FLOTILLA_CRASH_SEED=${sessionSeed}`);
  const fleet = await createSessionFleet();
  const say = process.env["FLOTILLA_CRASH_VERBOSE"] ? console.log : () => {};
  expectKept(await runSessionStorm(fleet, { seed: sessionSeed, servers: 1, say }));
}, 240_000);
