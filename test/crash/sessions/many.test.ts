import { test } from "vitest";
import { createSessionFleet, expectKept, sessionSeed } from "./harness.ts";
import { runSessionStorm } from "./storm.ts";

test("on postgres, three servers keep every promise about sessions through kills, pauses, restarts and lost connections", async () => {
  console.log(`FLOTILLA_CRASH_SEED=${sessionSeed}`);
  const fleet = await createSessionFleet({ on: "postgres" });
  const say = process.env["FLOTILLA_CRASH_VERBOSE"] ? console.log : () => {};
  expectKept(await runSessionStorm(fleet, { seed: sessionSeed, servers: 3, say }));
}, 240_000);
