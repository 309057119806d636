import { monotonicMs } from "./ledger.ts";

const lookEveryMs = { least: 10, most: 50 };
// A check takes the machine's time from the processes it waits for, so a test that has waited long checks rarely.
const waitedShare = 0.05;

/** Waits for something to become true. A disk that others use too may stand still for a minute. */
export async function until<Value>(
  what: string,
  condition: () => Value | Promise<Value>,
  limitMs = 90_000,
): Promise<NonNullable<Value>> {
  const startedMs = monotonicMs();
  for (;;) {
    const value = await condition();
    if (value) return value as NonNullable<Value>;
    const waitedMs = monotonicMs() - startedMs;
    if (waitedMs > limitMs) throw new Error(`after ${limitMs} ms still not: ${what}`);
    const { least, most } = lookEveryMs;
    await pauseFor(Math.min(Math.max(waitedMs * waitedShare, least), most));
  }
}

export function pauseFor(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
