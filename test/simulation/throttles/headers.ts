/**
 * What a downstream states about its limits with every answer: nothing, the truth, or lies that would
 * stop or flood a pod that believed them.
 */
import type { World } from "../world.ts";

export type Stating = {
  readonly name: string;
  /** A call comes in. Gives whether it is within the limit, and what its answer states. */
  take(): { readonly within: boolean; readonly headers: Readonly<Record<string, string>> };
};

const windowMs = 10_000;

export function createStating(world: World): Stating | undefined {
  const { scheduler } = world;
  const limit = world.pick([20, 100, 600]);
  const always = (name: string, headers: Readonly<Record<string, string>>): Stating => ({
    name,
    take: () => ({ within: true, headers }),
  });
  let left: number = limit;
  let filledMs = scheduler.nowMs;
  const steadily: Stating = {
    name: "a true bucket",
    take() {
      const perMs = limit / windowMs;
      left = Math.min(limit, left + (scheduler.nowMs - filledMs) * perMs);
      filledMs = scheduler.nowMs;
      const within = left >= 1;
      if (within) left--;
      return {
        within,
        headers: {
          "x-ratelimit-limit-requests": String(limit),
          "x-ratelimit-remaining-requests": String(Math.floor(left)),
          "x-ratelimit-reset-requests": `${Math.ceil((limit - left) / perMs)}ms`,
          ...(within ? {} : { "retry-after-ms": String(Math.ceil((1 - left) / perMs)) }),
        },
      };
    },
  };
  const atReset: Stating = {
    name: "a true window",
    take() {
      if (scheduler.nowMs - filledMs >= windowMs) {
        filledMs = scheduler.nowMs - ((scheduler.nowMs - filledMs) % windowMs);
        left = limit;
      }
      const within = left >= 1;
      if (within) left--;
      const resetS = Math.ceil((filledMs + windowMs - scheduler.nowMs) / 1_000);
      return {
        within,
        headers: {
          "ratelimit-policy": `"default";q=${limit};w=${windowMs / 1_000}`,
          ratelimit: `"default";r=${left};t=${resetS}`,
        },
      };
    },
  };
  const year = "8760h";
  return world.pick([
    undefined,
    undefined,
    steadily,
    atReset,
    always("nothing left for a year", {
      "x-ratelimit-limit-requests": "5",
      "x-ratelimit-remaining-requests": "0",
      "x-ratelimit-reset-requests": year,
    }),
    always("nothing at all", {
      "x-ratelimit-limit-requests": "0",
      "x-ratelimit-remaining-requests": "0",
      "x-ratelimit-reset-requests": year,
    }),
    always("far too much", {
      "x-ratelimit-limit-requests": "9000000",
      "x-ratelimit-remaining-requests": "8999999",
      "x-ratelimit-reset-requests": "1ms",
    }),
  ]);
}
