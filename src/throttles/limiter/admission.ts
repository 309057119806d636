import { fraction, type Random } from "../../base/random.ts";
import type { Allowance } from "../learning/limit-controller.ts";
import { createPodBucket } from "./bucket.ts";
import { createQuotas } from "./quotas.ts";
import type { LimiterSettings } from "./settings.ts";
import {
  type Reserve,
  type PerPriority,
  zeroPerPriority,
  priorities,
  type Priority,
} from "./priority.ts";

/** Why a call can't begin now although it fits under the limit. */
export type HoldReason = "no_share" | "breaker" | "hold" | "bucket";

const brakeMs = 5_000;
const firstPauseMs = 250;
const maxPauseMs = 2_000;

/**
 * Decides whether a call may begin: the limit, the reserved permits, holds, the brake, the bucket and
 * what the downstream says that remains of its own limits.
 */
export function createAdmission(settings: LimiterSettings, random: Random, startMs: number) {
  const bucket = createPodBucket(settings.controller.bucket, startMs);
  const quotas = createQuotas({
    countsTokens: settings.controller.bucket?.unit === "tokens",
    estimate: settings.estimate,
  });
  let allowance: Allowance | undefined;
  let limit = 0;
  let reserve: PerPriority = zeroPerPriority();
  let brake: Brake | undefined;
  let allowedFromMs = 0;
  let retryFromMs = 0;

  const bucketWaitMs = (estimate: number, nowMs: number): number =>
    Math.max(bucket ? bucket.waitMs(estimate, nowMs) : 0, quotas.waitMs(estimate, nowMs));
  const heldUntilMs = () => Math.max(allowedFromMs, retryFromMs, brake?.pausedUntilMs ?? 0);

  /** Applies the allowance and the brake. A brake ends by itself after a while. */
  const applyLimit = (nowMs: number): void => {
    if (brake && nowMs >= brake.untilMs) brake = undefined;
    const next = Math.min(allowance?.limit ?? 0, brake?.cap ?? Infinity);
    if (next === limit) return;
    limit = next;
    reserve = fitReserve(settings.reserve, limit);
  };

  return {
    quotas,
    fit: applyLimit,
    limit: () => limit,
    epoch: () => allowance?.epoch ?? 0,
    breaker: () => allowance?.breaker ?? "closed",
    isBraked: () => brake !== undefined,

    /** Sets the allowance. Returns whether it begins another epoch. */
    allow(next: Allowance | undefined, nowMs: number): boolean {
      const begins = next !== undefined && next.epoch !== allowance?.epoch;
      if (begins) brake = undefined;
      allowance = next;
      allowedFromMs = next ? nowMs + next.holdMs : 0;
      bucket?.refill(next?.refillPerS, nowMs);
      quotas.share(next?.part ?? 1);
      applyLimit(nowMs);
      return begins;
    },

    /** Whether another call of this priority fits under the limit. */
    admits: (priority: Priority, inFlight: number, inFlightOf: PerPriority): boolean =>
      mayTakePermit(priority, limit - inFlight, reserve, inFlightOf),

    holdReason(estimate: number, nowMs: number): HoldReason | undefined {
      // Compared here, because a timer fires too late in a process that was suspended.
      if (allowance?.untilMs !== undefined && nowMs >= allowance.untilMs) return "no_share";
      if (allowance?.breaker === "open") return "breaker";
      if (nowMs < heldUntilMs()) return "hold";
      if (bucketWaitMs(estimate, nowMs) > 0) return "bucket";
      return undefined;
    },

    /** How long until holds, the bucket and the downstream's limits let a call begin. */
    waitMs: (estimate: number, nowMs: number): number =>
      Math.max(0, heldUntilMs() - nowMs, bucketWaitMs(estimate, nowMs)),

    /** For how many calls, up to `max`, there is enough. At least one: the caller has asked `holdReason`. */
    affordableCalls: (estimate: number, max: number, nowMs: number): number =>
      Math.min(
        max,
        bucket?.affordableCalls(estimate, nowMs) ?? max,
        quotas.affordableCalls(estimate, max, nowMs),
      ),

    /** A call begins. Returns the limits of the downstream that it tries although nothing remains. */
    take(estimate: number, nowMs: number): readonly string[] {
      bucket?.take(estimate, nowMs);
      return quotas.take(estimate, nowMs);
    },

    settleEstimate: (estimated: number, used: number | undefined, nowMs: number): void =>
      bucket?.settleEstimate(estimated, used, nowMs),

    bucketSnapshot: (nowMs: number) => bucket?.snapshot(nowMs),

    holdMs: (nowMs: number): number => Math.max(0, heldUntilMs() - nowMs),

    /** The downstream wants no calls for this long (`Retry-After`). */
    holdFor(retryAfterMs: number, nowMs: number): void {
      const cappedMs = Math.min(retryAfterMs, settings.controller.maxHoldMs);
      // A little longer, by chance, so that not all pods come back at the same moment.
      retryFromMs = Math.max(retryFromMs, nowMs + cappedMs * (1 + fraction(random) / 10));
    },

    brake(call: number, calls: number, nowMs: number): void {
      brake = pullBrake(brake, { share: allowance?.limit ?? 0, call, calls, nowMs });
      applyLimit(nowMs);
    },

    /** A call has succeeded. */
    easeBrake(call: number, nowMs: number): void {
      if (!brake) return;
      brake = easedBrake(brake, allowance?.limit ?? 0, call);
      applyLimit(nowMs);
    },
  };
}

/**
 * How a pod reacts to throttled calls by itself, before the leader has learned of them. The first
 * throttled call of an epoch takes one off the pod's share. Calls that began after that and are
 * throttled as well halve what is left. At a limit of one, calls pause instead, longer each time, or
 * they would be repeated as fast as they are refused. Where a pause ended all refusals, as many
 * successes as the cap double it again, because they weren't for the number of calls; once a call is
 * refused on that way, the cap stays down. The brake ends with the next epoch, or after a while without one.
 */
type Brake = {
  readonly cap: number;
  /** Calls up to this number began before the brake was pulled, and say nothing about it. */
  readonly since: number;
  readonly untilMs: number;
  /** No call begins before this. */
  readonly pausedUntilMs: number;
  readonly pauses: number;
  /** Calls that have begun since and succeeded. */
  readonly successes: number;
  /** The cap was doubled. A refusal from then on ends that. */
  readonly eased: "no" | "yes" | "in_vain";
};

function pullBrake(
  brake: Brake | undefined,
  { share, call, calls, nowMs }: { share: number; call: number; calls: number; nowMs: number },
): Brake | undefined {
  if (share < 1) return brake;
  if (brake && call <= brake.since) return brake;
  const cap = brake ? Math.floor(Math.min(brake.cap, share) / 2) : share - 1;
  const pauses = (brake?.pauses ?? 0) + (cap < 1 ? 1 : 0);
  const pauseMs = cap < 1 ? Math.min(maxPauseMs, firstPauseMs * 2 ** (pauses - 1)) : 0;
  return {
    cap: Math.max(1, cap),
    since: calls,
    untilMs: nowMs + brakeMs,
    pausedUntilMs: nowMs + pauseMs,
    pauses,
    successes: 0,
    eased: brake && brake.eased !== "no" ? "in_vain" : "no",
  };
}

function easedBrake(brake: Brake, share: number, call: number): Brake {
  if (call <= brake.since || brake.eased === "in_vain" || brake.pauses === 0) return brake;
  if (brake.cap >= share) return brake;
  const successes = brake.successes + 1;
  if (successes < brake.cap) return { ...brake, successes };
  return { ...brake, cap: Math.min(share, brake.cap * 2), successes: 0, eased: "yes" };
}

/**
 * Fits the reservations under a limit. They never take the last permit, so that a small limit still
 * serves all priorities. Where they don't fit, the more urgent ones come first.
 */
function fitReserve(reserve: Reserve, limit: number): PerPriority {
  let left = Math.max(0, limit - 1);
  const fitted = zeroPerPriority();
  for (const priority of priorities) {
    fitted[priority] = Math.min(left, reserve[priority] ?? 0);
    left -= fitted[priority];
  }
  return fitted;
}

/** Whether a call of this priority may have a permit, or the free ones are reserved for others. */
function mayTakePermit(
  priority: Priority,
  free: number,
  reserve: PerPriority,
  inFlight: PerPriority,
): boolean {
  let kept = 0;
  for (const each of priorities) {
    if (each !== priority) kept += Math.max(0, reserve[each] - inFlight[each]);
  }
  return free > kept;
}
