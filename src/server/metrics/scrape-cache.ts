import type { Clock } from "../../base/clock.ts";

// However often somebody scrapes, the store is asked for no more than a twentieth of the time.
const ageFactor = 20;
const ageMinMs = 2_000;

/** Asks the store when somebody scrapes, once for all who do, and not again for a while. */
export function askedSeldom<Parts extends { clock: Clock }>(ask: (parts: Parts) => Promise<void>) {
  let asking: Promise<void> | undefined;
  let askAgainAtMs = -Infinity;
  const once = async (parts: Parts): Promise<void> => {
    const startedMs = parts.clock.monotonic();
    await ask(parts);
    const nowMs = parts.clock.monotonic();
    askAgainAtMs = nowMs + Math.max(ageMinMs, (nowMs - startedMs) * ageFactor);
  };
  return {
    async refresh(parts: Parts): Promise<void> {
      if (parts.clock.monotonic() < askAgainAtMs) return;
      await (asking ??= once(parts).finally(() => {
        asking = undefined;
      }));
    },
  };
}
