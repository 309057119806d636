import { informativeCalls, throttledShare } from "./windows.ts";
import { braked, coolingMs, type Evidence, isSlow, type LimitDecision } from "./evidence.ts";

/**
 * The controller that remembers its ceiling, and so works near the true capacity. Its phases:
 *
 * - climbing: no ceiling is known; every whole round grows the limit, by twice as much as the last.
 * - holding: at the ceiling. After a quiet while it probes, by a hundredth.
 * - probing: a step above what was good. Proven by a whole round, it goes on with twice the step;
 *   struck, it returns at once, and waits longer before the next.
 * - braked: struck out of the blue. Each further strike halves again, and cools.
 * - trying: back at just below the remembered ceiling, or at what was accepted when a large step failed.
 *   Struck there, the ceiling is what the downstream accepted. Proven, it is held, or if something far
 *   above was refused the middle is tried.
 */
export type CeilingMemory = { readonly algorithm: "ceiling" } & (
  | { readonly phase: "climbing"; readonly good: number; readonly step: number }
  | {
      readonly phase: "holding";
      readonly quietMs: number;
      readonly waitMs: number;
      /** It came here by a strike, and hasn't been proven since. */
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
      /** Coming from below, the limit that was refused: what lies between is searched. */
      readonly refused: number | null;
    }
);

export const firstCeilingMemory: CeilingMemory = {
  algorithm: "ceiling",
  phase: "climbing",
  good: 0,
  step: 1,
};

/** A probe is followed by the next after this long, or up to the longer, where probes keep failing. */
export const probeWaitMs = 4_000;
export const maxProbeWaitMs = 20_000;
/** The smallest step: one in a hundred, which costs about that share of calls while a probe fails. */
const stepShare = 0.01;
/**
 * At a limit that was proven so few throttled calls aren't worth a reaction, since with a wall more follow
 * at once: a stray one, or this share of calls. It takes some calls to speak of strays.
 */
const strayShare = 0.005;
const strayCalls = 20;
/** And so few are answered by one small step instead of the brake. */
const mildShare = 0.02;
/**
 * Pods learn of a lower limit one after the other; until all have, those that did may be refused for what
 * the others still do.
 */
const settlingMs = 2_500;
const settlingShare = 0.05;
/** A ceiling is known well enough when it is known to this share; probes do the rest. */
const foundShare = 0.04;
/** From a deep brake the way back is taken in strides, as one success at a limit of one proves little. */
const stride = 4;

export function smallStep(limit: number): number {
  return Math.max(1, Math.round(limit * stepShare));
}

export function decideCeiling(memory: CeilingMemory, seen: Evidence): LimitDecision<CeilingMemory> {
  if (seen.struck === "errors") return brake(seen, ceilingOf(memory, seen.limit), memory);
  if (seen.struck === "throttled" && !isStray(memory, seen)) return afterStrike(memory, seen);
  return withoutStrike(memory, seen);
}

/** What to return to after a brake for another reason than the ceiling itself. */
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

function afterStrike(memory: CeilingMemory, seen: Evidence): LimitDecision<CeilingMemory> {
  const { limit } = seen;
  switch (memory.phase) {
    case "climbing": {
      const good = Math.min(Math.max(memory.good, braked(limit)), limit - 1);
      return afterStrikeAbove(good, seen, { strikes: 1, fromBelow: true });
    }
    case "probing": {
      if (memory.step > smallStep(memory.good)) {
        return afterStrikeAbove(memory.good, seen, { strikes: 1, fromBelow: true });
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
        return afterStrikeAbove(memory.good, seen, { strikes: memory.strikes + 1, fromBelow });
      }
      return brake(seen, limit, memory);
    case "holding":
      if (isMild(seen)) {
        return {
          limit: limit - smallStep(limit),
          memory: holdingMemory(probeWaitMs),
          reacted: true,
        };
      }
      // Pods that braked by themselves have done what the brake is for; what is next is just below.
      if (seen.restrained && !memory.shaken && limit > 2) {
        return tryBelow(braked(limit), limit);
      }
      return brake(seen, limit, memory);
    case "braked":
      return brake(seen, memory.ceiling, memory);
  }
}

/**
 * Goes to what the downstream accepted, between what was good and what was refused; if it is struck
 * there again, closer to what was good each time.
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
  seen: Evidence,
  ceiling: number,
  memory: CeilingMemory,
): LimitDecision<CeilingMemory> {
  const strikes = memory.phase === "braked" ? memory.strikes + 1 : 1;
  return {
    limit: braked(seen.limit),
    memory: brakedMemory(ceiling, strikes),
    reacted: true,
    coolMs: coolingMs(strikes),
  };
}

export function brakedMemory(ceiling: number, strikes: number): CeilingMemory {
  return { algorithm: "ceiling", phase: "braked", ceiling, strikes };
}

function withoutStrike(memory: CeilingMemory, seen: Evidence): LimitDecision<CeilingMemory> {
  const { limit, proven: whole, calm, elapsedMs } = seen;
  switch (memory.phase) {
    case "climbing": {
      if (!whole || isSlow(seen)) return { limit, memory };
      const { step } = memory;
      return { limit: limit + step, memory: { ...memory, good: limit, step: step * 2 } };
    }
    case "holding": {
      const quietMs = memory.quietMs + elapsedMs;
      if (!whole || quietMs < memory.waitMs || isSlow(seen)) {
        return { limit, memory: { ...memory, quietMs, shaken: memory.shaken && !whole } };
      }
      const step = smallStep(limit);
      const { waitMs } = memory;
      return {
        limit: limit + step,
        memory: { algorithm: "ceiling", phase: "probing", good: limit, step, waitMs },
      };
    }
    case "probing": {
      if (!whole) return { limit, memory };
      if (isSlow(seen))
        return { limit: memory.good, memory: holdingMemory(longerWait(memory.waitMs)) };
      const step = memory.step * 2;
      const { waitMs } = memory;
      return {
        limit: limit + step,
        memory: { algorithm: "ceiling", phase: "probing", good: limit, step, waitMs },
      };
    }
    case "braked": {
      // The way back isn't growth, so slowness doesn't bar it.
      if (!whole && !calm) return { limit, memory };
      const { ceiling, strikes } = memory;
      if (strikes > 1 && limit * stride < ceiling) return { limit: limit * stride, memory };
      return tryBelow(limit, ceiling);
    }
    case "trying": {
      if (!whole) return { limit, memory };
      const { refused, ceiling } = memory;
      // Just below the ceiling was good, so now the ceiling itself.
      if (limit < ceiling) return { limit: ceiling, memory: { ...memory, good: limit } };
      if (refused === null || refused - limit <= searchPrecision(limit) || isSlow(seen)) {
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

/** With no more than this between what is good and what was refused, the ceiling is found. */
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
