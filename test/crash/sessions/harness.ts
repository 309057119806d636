import process from "node:process";
import { expect, onTestFinished } from "vitest";
import { createFleet, type FleetOptions } from "../harness.ts";
import { type SessionFleet, sessionFleetOn } from "./fleet.ts";
import type { SessionStorm } from "./storm.ts";

export const sessionSeed = Number(
  process.env["FLOTILLA_CRASH_SEED"] ?? Math.floor(Math.random() * 2 ** 32),
);

/** Servers and clients on one store. All gone when the test is over. */
export async function createSessionFleet(options: FleetOptions = {}): Promise<SessionFleet> {
  const fleet = sessionFleetOn(await createFleet(options));
  onTestFinished(() => fleet.hangUp());
  return fleet;
}

export function expectKept({ violations, mildness, counts }: SessionStorm): void {
  console.log({ seed: sessionSeed, ...counts });
  expect(violations).toEqual([]);
  // Otherwise the storm would have been too mild to show anything.
  expect(mildness).toEqual([]);
}
