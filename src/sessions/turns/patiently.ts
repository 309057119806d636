import { contentionMs } from "../../base/backoff.ts";
import { sleep } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import { storeAway } from "../log/retry.ts";
import type { Control, RunnerParts } from "./parts.ts";

/**
 * Reads until the store gives something: that it is away for a moment is no reason for an answer to fail.
 * Undefined where nobody waits for it any more.
 */
export async function patiently<Found>(
  { clock, random }: Pick<RunnerParts, "clock" | "random">,
  { signal }: Pick<Control, "signal">,
  read: () => Promise<Found>,
): Promise<Found | undefined> {
  for (let tries = 1; !signal.aborted; tries++) {
    try {
      return await read();
    } catch (error) {
      if (!hasCode(error, ...storeAway)) throw error;
    }
    await sleep(clock, contentionMs(tries, random), signal).catch(() => {});
  }
  return undefined;
}
