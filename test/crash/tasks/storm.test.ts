import process from "node:process";
import { expect, onTestFinished, test } from "vitest";
import { startPostgres } from "../../postgres/server.ts";
import { createFleet } from "../harness.ts";
import { openRoughPlace } from "../postgres/rough.ts";
import { runStorm, type Storm } from "./storm.ts";
import { postgresPlan, serverSettings, sqlitePlan } from "./storm-plans.ts";

const seed = Number(process.env["FLOTILLA_CRASH_SEED"] ?? Math.floor(Math.random() * 2 ** 32));

test("on sqlite, four pods and twenty thousand tasks keep every promise through kills, pauses and restarts", async () => {
  console.log(`FLOTILLA_CRASH_SEED=${seed}`);
  const fleet = await createFleet();
  expectKept(await runStorm(fleet, { ...sqlitePlan, seed }));
}, 240_000);

test("on postgres, eight pods keep every promise through that, and through all that happens to servers, networks and clocks", async () => {
  console.log(`FLOTILLA_CRASH_SEED=${seed}`);
  // It gets killed, so no other test uses it.
  const server = await startPostgres({ settings: serverSettings });
  onTestFinished(() => server.stop());
  const fleet = await createFleet({ on: "postgres", server: server.url });
  const { common, placeAt, close } = await openRoughPlace(fleet, server);
  onTestFinished(close);
  expectKept(await runStorm(fleet, { ...postgresPlan, seed, common, placeAt }));
}, 240_000);

function expectKept({ violations, mildness, counts }: Storm): void {
  console.log({ seed, ...counts });
  expect(violations).toEqual([]);
  // Otherwise the storm would have been too mild to show anything.
  expect(mildness).toEqual([]);
}
