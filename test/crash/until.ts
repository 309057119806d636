import { monotonicMs } from "./ledger.ts";

const lookEveryMs = 10;

/** Waits for something to become true. The limit is for a machine with much else to do. */
export async function until<Value>(
  what: string,
  condition: () => Value | Promise<Value>,
  limitMs = 45_000,
): Promise<NonNullable<Value>> {
  const deadlineMs = monotonicMs() + limitMs;
  for (;;) {
    const value = await condition();
    if (value) return value as NonNullable<Value>;
    if (monotonicMs() > deadlineMs) throw new Error(`after ${limitMs} ms still not: ${what}`);
    await pauseFor(lookEveryMs);
  }
}

export function pauseFor(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
