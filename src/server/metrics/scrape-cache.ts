import type { Clock } from "../../base/clock.ts";

// However often `/metrics` is scraped, reads take at most a twentieth of the time.
const ageFactor = 20;
const minAgeMs = 2_000;

/** Reads when it is scraped: once for concurrent scrapes, and then not again for a while. */
export function createScrapeCache<Parts extends { clock: Clock }>(
  read: (parts: Parts) => Promise<void>,
) {
  let reading: Promise<void> | undefined;
  let readAgainAtMs = -Infinity;
  const readOnce = async (parts: Parts): Promise<void> => {
    const startedMs = parts.clock.monotonic();
    await read(parts);
    const nowMs = parts.clock.monotonic();
    readAgainAtMs = nowMs + Math.max(minAgeMs, (nowMs - startedMs) * ageFactor);
  };
  return {
    async refresh(parts: Parts): Promise<void> {
      if (parts.clock.monotonic() < readAgainAtMs) return;
      await (reading ??= readOnce(parts).finally(() => {
        reading = undefined;
      }));
    },
  };
}
