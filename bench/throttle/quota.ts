import type { VirtualTime } from "./virtual-time.ts";

type Taken = { readonly taken: boolean; readonly headers: Readonly<Record<string, string>> };

const minuteMs = 60_000;
const windowMs = 10_000;
/** The account has just been used by others: this much of its bucket is left, and of its first window. */
const startMs = 1_000;
const firstWindowMs = 4_000;

/**
 * A limit on calls per time, stated with every answer as it is when the call comes in. The bucket is a
 * minute's worth that fills steadily, in the headers of OpenAI; the window is ten seconds' worth at the
 * beginning of each, in those of the IETF.
 */
export function createQuota(
  shape: "bucket" | "window",
  time: VirtualTime,
  { capacity, latencyMs }: { readonly capacity: number; readonly latencyMs: number },
): { take(): Taken } {
  const perMs = capacity / latencyMs;
  return shape === "bucket" ? bucket(time, perMs) : window(time, perMs);
}

function bucket(time: VirtualTime, perMs: number): { take(): Taken } {
  const limit = Math.round(perMs * minuteMs);
  let level = perMs * startMs;
  let filledMs = 0;
  return {
    take() {
      const nowMs = time.monotonic();
      level = Math.min(limit, level + perMs * (nowMs - filledMs));
      filledMs = nowMs;
      const taken = level >= 1;
      if (taken) level--;
      const headers = {
        "x-ratelimit-limit-requests": String(limit),
        "x-ratelimit-remaining-requests": String(Math.floor(level)),
        "x-ratelimit-reset-requests": `${((limit - level) / perMs / 1_000).toFixed(3)}s`,
      };
      if (taken) return { taken, headers };
      const retryMs = Math.ceil((1 - level) / perMs);
      return { taken, headers: { ...headers, "retry-after-ms": String(retryMs) } };
    },
  };
}

function window(time: VirtualTime, perMs: number): { take(): Taken } {
  const limit = Math.round(perMs * windowMs);
  let left = Math.round(perMs * firstWindowMs);
  let endsMs = firstWindowMs;
  return {
    take() {
      const nowMs = time.monotonic();
      while (nowMs >= endsMs) {
        endsMs += windowMs;
        left = limit;
      }
      const taken = left >= 1;
      if (taken) left--;
      const resetS = Math.ceil((endsMs - nowMs) / 1_000);
      const headers = {
        "ratelimit-policy": `"default";q=${limit};w=${windowMs / 1_000}`,
        ratelimit: `"default";r=${left};t=${resetS}`,
      };
      return { taken, headers: taken ? headers : { ...headers, "retry-after": String(resetS) } };
    },
  };
}
