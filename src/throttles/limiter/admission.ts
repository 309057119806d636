import { fraction, type Random } from "../../base/random.ts";
import type { Allowance } from "../learning/allowance.ts";
import { type Brake, pullBrake } from "./limiter-brake.ts";
import { fitReserve, mayHave, noneOfAny, type PerPriority } from "./limiter-reserve.ts";
import type { LimiterSettings } from "./settings.ts";
import { createTokens } from "./limiter-tokens.ts";
import type { Priority } from "./wait-queue.ts";

/** Why a call can't begin now although the limit would let it. */
export type HeldBy = "no_share" | "breaker" | "hold" | "bucket";

/** How much may be done at present: the limit and what is kept of it, holds, the brake and the bucket. */
export function createRoom(settings: LimiterSettings, random: Random, startMs: number) {
  const tokens = createTokens(settings.controller.bucket, startMs);
  let allowance: Allowance | undefined;
  let limit = 0;
  let reserve: PerPriority = noneOfAny();
  let brake: Brake | undefined;
  let allowedFromMs = 0;
  let retryFromMs = 0;

  const heldUntilMs = () => Math.max(allowedFromMs, retryFromMs, brake?.pausedUntilMs ?? 0);

  /** Goes by what holds now; a brake that was pulled long enough ago is let go. */
  const fit = (nowMs: number): void => {
    if (brake && nowMs >= brake.untilMs) brake = undefined;
    const next = Math.min(allowance?.limit ?? 0, brake?.cap ?? Infinity);
    if (next === limit) return;
    limit = next;
    reserve = fitReserve(settings.reserve, limit);
  };

  return {
    tokens,
    fit,
    limit: () => limit,
    epoch: () => allowance?.epoch ?? 0,
    breaker: () => allowance?.breaker ?? "closed",
    isBraked: () => brake !== undefined,

    /** Gives whether this begins another epoch. */
    allow(next: Allowance | undefined, nowMs: number): boolean {
      const begins = next !== undefined && next.epoch !== allowance?.epoch;
      if (begins) brake = undefined;
      allowance = next;
      allowedFromMs = next ? nowMs + next.holdMs : 0;
      tokens?.refill(next?.refillPerS, nowMs);
      fit(nowMs);
      return begins;
    },

    /** Whether a call of this priority fits under the limit, beside those that are in flight. */
    admits: (priority: Priority, inFlight: number, inFlightOf: PerPriority): boolean =>
      mayHave(priority, limit - inFlight, reserve, inFlightOf),

    heldBy(estimate: number, nowMs: number): HeldBy | undefined {
      // A timer would come too late in a process that was stopped for a while.
      if (allowance?.untilMs !== undefined && nowMs >= allowance.untilMs) return "no_share";
      if (allowance?.breaker === "open") return "breaker";
      if (nowMs < heldUntilMs()) return "hold";
      if (tokens && tokens.waitMs(estimate, nowMs) > 0) return "bucket";
      return undefined;
    },

    /** How long it is until a call may begin, as far as time alone decides it. */
    waitMs: (estimate: number, nowMs: number): number =>
      Math.max(0, heldUntilMs() - nowMs, tokens ? tokens.waitMs(estimate, nowMs) : 0),

    holdMs: (nowMs: number): number => Math.max(0, heldUntilMs() - nowMs),

    /** The downstream has asked everybody to stay away. */
    stayAway(askedMs: number, nowMs: number): void {
      const cappedMs = Math.min(askedMs, settings.controller.maxHoldMs);
      // A little later than asked, and not all pods at the same moment.
      retryFromMs = Math.max(retryFromMs, nowMs + cappedMs * (1 + fraction(random) / 10));
    },

    brake(call: number, calls: number, nowMs: number): void {
      brake = pullBrake(brake, { share: allowance?.limit ?? 0, call, calls, nowMs });
      fit(nowMs);
    },
  };
}
