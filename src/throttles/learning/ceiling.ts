import { informativeCalls, throttledShare } from "./windows.ts";
import { braked, coolingMs, type Evidence, isSlow, type LimitDecision } from "./evidence.ts";

/**
 * The controller that remembers its ceiling, and so works near the true capacity. Its phases:
 *
 * - climbing: no ceiling is known. Every proven round grows the limit, by twice as much as the last.
 * - holding: at the ceiling. After a while without strikes it probes, by a hundredth.
 * - probing: a step above the last good limit. Proven by a whole round, it continues with twice the
 *   step. Struck, it returns at once, and waits longer before the next probe.
 * - braked: struck unexpectedly. Each further strike halves the limit again, and pauses calls.
 * - trying: just below the remembered ceiling, or at what the downstream accepted when a large step
 *   failed. Struck there, the ceiling is what the downstream accepted. Proven, it is held, or if a
 *   much higher limit was refused, the middle is tried.
 */
export type CeilingMemory = { readonly algorithm: "ceiling" } & (
  | {
      readonly phase: "climbing";
      readonly good: number;
      readonly step: number;
      /** The limit is what the downstream's answers promise, and not the next step. */
      readonly promised?: true;
    }
  | {
      readonly phase: "holding";
      readonly quietMs: number;
      readonly waitMs: number;
      /** It entered this phase by a strike, and hasn't been proven since. */
      readonly shaken: boolean;
    }
  | {
      readonly phase: "probing";
      readonly good: number;
      readonly step: number;
      readonly waitMs: number;
    }
  | { readonly phase: "braked"; readonly ceiling: number; readonly strikes: number }
  | {
      readonly phase: "trying";
      readonly good: number;
      readonly ceiling: number;
      readonly strikes: number;
      /** After a step up failed: the refused limit. The range below it is searched. */
      readonly refused: number | null;
    }
);

export const firstCeilingMemory: CeilingMemory = climbingMemory(0, 1);

function climbingMemory(good: number, step: number): CeilingMemory {
  return { algorithm: "ceiling", phase: "climbing", good, step };
}

/** The limit goes to what the downstream promises. Undefined where a ceiling was met, which counts for more. */
export function promisedCeiling(memory: CeilingMemory): CeilingMemory | undefined {
  return memory.phase === "climbing" ? { ...memory, promised: true } : undefined;
}

/** The wait between two probes, and its maximum while probes keep failing. */
export const probeWaitMs = 4_000;
export const maxProbeWaitMs = 20_000;
/** The smallest step: one in a hundred, which costs about that share of calls while a probe fails. */
const stepShare = 0.01;
/**
 * At a proven limit, a single throttled call, or up to this share of calls, is a stray without a
 * reaction: at a real limit more follow at once. It takes some calls to tell strays.
 */
const strayShare = 0.005;
const strayCalls = 20;
/** Up to this share, one small step down is enough instead of the brake. */
const mildShare = 0.02;
/**
 * Pods apply a lower limit one after the other. Until all have, calls of the first ones may be refused
 * because of the load of the others.
 */
const settlingMs = 2_500;
const settlingShare = 0.05;
/** The search for a ceiling ends at this precision; probes do the rest. */
const foundShare = 0.04;
/** After a deep brake the limit grows back in strides: one success at a limit of one proves little. */
const stride = 4;

export function smallStep(limit: number): number {
  return Math.max(1, Math.round(limit * stepShare));
}

export function decideCeiling(
  memory: CeilingMemory,
  evidence: Evidence,
): LimitDecision<CeilingMemory> {
  if (evidence.struck === "errors")
    return brake(evidence, ceilingOf(memory, evidence.limit), memory);
  if (evidence.struck === "throttled" && !isStray(memory, evidence))
    return afterStrike(memory, evidence);
  return withoutStrike(memory, evidence);
}

/** The ceiling to return to after a brake for another reason than the ceiling itself. */
export function ceilingOf(memory: CeilingMemory, limit: number): number {
  switch (memory.phase) {
    case "climbing":
    case "probing":
      return Math.max(memory.good, 1);
    case "holding":
      return limit;
    case "braked":
    case "trying":
      return memory.ceiling;
  }
}

function afterStrike(memory: CeilingMemory, evidence: Evidence): LimitDecision<CeilingMemory> {
  const { limit } = evidence;
  switch (memory.phase) {
    case "climbing": {
      if (memory.promised) {
        // Nothing between the last proven limit and this one was tried, so it isn't searched from above.
        const good = Math.min(Math.max(memory.good, 1), limit - 1);
        return afterStrikeAbove(good, evidence, { strikes: 1, fromBelow: false });
      }
      const good = Math.min(Math.max(memory.good, braked(limit)), limit - 1);
      return afterStrikeAbove(good, evidence, { strikes: 1, fromBelow: true });
    }
    case "probing": {
      if (memory.step > smallStep(memory.good)) {
        return afterStrikeAbove(memory.good, evidence, { strikes: 1, fromBelow: true });
      }
      return {
        limit: memory.good,
        memory: holdingMemory(longerWait(memory.waitMs)),
        reacted: true,
      };
    }
    case "trying":
      if (limit > memory.good) {
        const fromBelow = memory.refused !== null;
        return afterStrikeAbove(memory.good, evidence, { strikes: memory.strikes + 1, fromBelow });
      }
      return brake(evidence, limit, memory);
    case "holding":
      if (isMild(evidence)) {
        return {
          limit: limit - smallStep(limit),
          memory: holdingMemory(probeWaitMs),
          reacted: true,
        };
      }
      // Pods that braked by themselves have lowered the load already; try just below the limit next.
      if (evidence.restrained && !memory.shaken && limit > 2) {
        return tryBelow(braked(limit), limit);
      }
      return brake(evidence, limit, memory);
    case "braked":
      return brake(evidence, memory.ceiling, memory);
  }
}

/**
 * Goes to what the downstream accepted, between the good and the refused limit. With every further
 * strike it goes closer to the good one.
 */
function afterStrikeAbove(
  good: number,
  { limit, accepted }: Evidence,
  { strikes, fromBelow }: { strikes: number; fromBelow: boolean },
): LimitDecision<CeilingMemory> {
  const measured = good + ((accepted ?? good) - good) / strikes;
  const next = Math.max(good, Math.min(limit - 1, Math.round(measured)));
  if (limit - good <= searchPrecision(good)) {
    return { limit: good, memory: { ...holdingMemory(probeWaitMs), shaken: true }, reacted: true };
  }
  return {
    limit: next,
    memory: tryingMemory({ good, ceiling: next, strikes, refused: fromBelow ? limit : null }),
    reacted: true,
  };
}

function tryBelow(good: number, ceiling: number): LimitDecision<CeilingMemory> {
  return {
    limit: Math.max(good, ceiling - smallStep(ceiling)),
    memory: tryingMemory({ good, ceiling, strikes: 0, refused: null }),
    reacted: true,
  };
}

function brake(
  evidence: Evidence,
  ceiling: number,
  memory: CeilingMemory,
): LimitDecision<CeilingMemory> {
  const strikes = memory.phase === "braked" ? memory.strikes + 1 : 1;
  return {
    limit: braked(evidence.limit),
    memory: brakedMemory(ceiling, strikes),
    reacted: true,
    coolMs: coolingMs(strikes),
  };
}

export function brakedMemory(ceiling: number, strikes: number): CeilingMemory {
  return { algorithm: "ceiling", phase: "braked", ceiling, strikes };
}

function withoutStrike(memory: CeilingMemory, evidence: Evidence): LimitDecision<CeilingMemory> {
  const { limit, proven, calm, elapsedMs } = evidence;
  switch (memory.phase) {
    case "climbing": {
      if (!proven || isSlow(evidence)) return { limit, memory };
      const { step } = memory;
      return { limit: limit + step, memory: climbingMemory(limit, step * 2) };
    }
    case "holding": {
      const quietMs = memory.quietMs + elapsedMs;
      if (!proven || quietMs < memory.waitMs || isSlow(evidence)) {
        return { limit, memory: { ...memory, quietMs, shaken: memory.shaken && !proven } };
      }
      const step = smallStep(limit);
      const { waitMs } = memory;
      return {
        limit: limit + step,
        memory: { algorithm: "ceiling", phase: "probing", good: limit, step, waitMs },
      };
    }
    case "probing": {
      if (!proven) return { limit, memory };
      if (isSlow(evidence))
        return { limit: memory.good, memory: holdingMemory(longerWait(memory.waitMs)) };
      const step = memory.step * 2;
      const { waitMs } = memory;
      return {
        limit: limit + step,
        memory: { algorithm: "ceiling", phase: "probing", good: limit, step, waitMs },
      };
    }
    case "braked": {
      // The way back isn't growth, so slowness doesn't stop it.
      if (!proven && !calm) return { limit, memory };
      const { ceiling, strikes } = memory;
      if (strikes > 1 && limit * stride < ceiling) return { limit: limit * stride, memory };
      return tryBelow(limit, ceiling);
    }
    case "trying": {
      if (!proven) return { limit, memory };
      const { refused, ceiling } = memory;
      // Just below the ceiling was proven, so try the ceiling itself.
      if (limit < ceiling) return { limit: ceiling, memory: { ...memory, good: limit } };
      if (refused === null || refused - limit <= searchPrecision(limit) || isSlow(evidence)) {
        return { limit, memory: holdingMemory(probeWaitMs) };
      }
      const next = Math.floor((limit + refused) / 2);
      return {
        limit: next,
        memory: tryingMemory({ good: limit, ceiling: next, strikes: 0, refused }),
      };
    }
  }
}

/** The ceiling is found when the good and the refused limit are no farther apart than this. */
function searchPrecision(limit: number): number {
  return Math.max(1, limit * foundShare);
}

type Trying = Extract<CeilingMemory, { phase: "trying" }>;

function tryingMemory(what: Omit<Trying, "algorithm" | "phase">): CeilingMemory {
  return { algorithm: "ceiling", phase: "trying", ...what };
}

function longerWait(waitMs: number): number {
  return Math.min(maxProbeWaitMs, waitMs * 2);
}

export function holdingMemory(waitMs: number): Extract<CeilingMemory, { phase: "holding" }> {
  return { algorithm: "ceiling", phase: "holding", quietMs: 0, waitMs, shaken: false };
}

function isStray(memory: CeilingMemory, { limit, recent }: Evidence): boolean {
  const calls = informativeCalls(recent);
  if (calls < strayCalls) return false;
  const settling =
    memory.phase === "trying"
      ? limit === memory.good
      : memory.phase === "holding" && memory.quietMs < settlingMs;
  if (!settling && memory.phase !== "holding") return false;
  const share = settling ? settlingShare : strayShare;
  return recent.throttled <= Math.max(1, calls * share);
}

function isMild({ recent }: Evidence): boolean {
  return informativeCalls(recent) >= strayCalls && throttledShare(recent) <= mildShare;
}
