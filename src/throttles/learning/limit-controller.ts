import type { Algorithm, ControllerSettings } from "../settings.ts";
import {
  type Accepted,
  acceptedAtOnce,
  agedRound,
  braked,
  emptyRound,
  type Evidence,
  remainingHoldMs,
  isCalm,
  isSlow,
  isUsed,
  isProven,
  latelyCounts,
  addAccepted,
  type LimitDecision,
  nextRound,
  nothingAccepted,
  recentCounts,
  type EvidenceRound,
  withSample,
} from "./evidence.ts";
import { firstAimdMemory, type AimdMemory, decideAimd } from "./aimd.ts";
import { type Breaker, closedBreaker, cooledBreaker, nextBreaker } from "./breaker.ts";
import {
  brakedMemory,
  type CeilingMemory,
  decideCeiling,
  ceilingOf,
  promisedCeiling,
  firstCeilingMemory,
} from "./ceiling.ts";
import {
  agedWindows,
  errorRise,
  firstWindows,
  tooManyErrors,
  windowDurations,
  type Windows,
  withWindows,
} from "./windows.ts";
import { firstGradientMemory, type GradientMemory, decideGradient } from "./gradient.ts";
import { type Baseline, movedBaseline, noBaseline, rebased, slowness } from "./latency.ts";
import { nextPromised, nothingPromised, type Promised, promisedCalls } from "./promise.ts";
import { firstRefill, nextRefill, type Refill } from "./refill.ts";
import { asOf, type OutcomeCounts, noCounts, type Sample } from "./sample.ts";

/**
 * The state of a controller, as plain JSON. Times are durations that `step` counts, never readings of a
 * clock, so that another pod can continue where this one stopped.
 */
export type ControllerState = {
  readonly limit: number;
  /** Rises with every change of the limit, and with every strike. */
  readonly epoch: number;
  readonly pinned: number | null;
  readonly holdMs: number;
  readonly breaker: Breaker;
  readonly refill: Refill | null;
  readonly memory: Memory;
  readonly round: EvidenceRound;
  readonly windows: Windows;
  readonly accepted: Accepted;
  readonly baseline: Baseline;
  readonly promised: Promised;
};

export type LearnedAllowance = {
  readonly limit: number;
  readonly epoch: number;
  /** How long no call may begin, from now on. */
  readonly holdMs: number;
  readonly breaker: Breaker["state"];
  /** Units per second of the bucket; absent where there is no bucket, or no rate is known yet. */
  readonly refillPerS?: number;
};

export type BreakerState = LearnedAllowance["breaker"];

/** What a pod may do under one throttle at present, learned alone or by the fleet. */
export type Allowance = LearnedAllowance & {
  /** When it ends, by the pod's monotonic clock, where it is a share of the fleet's permits. */
  readonly untilMs?: number;
  /** Which part of what the downstream allows to all pods is this pod's. All of it by default. */
  readonly part?: number;
};

export function initialState(settings: ControllerSettings): ControllerState {
  return {
    limit: settings.initial,
    epoch: 1,
    pinned: settings.pinned,
    holdMs: 0,
    breaker: closedBreaker,
    refill: settings.bucket ? firstRefill(settings.bucket) : null,
    memory: firstMemory(settings.algorithm),
    round: emptyRound,
    windows: firstWindows,
    accepted: nothingAccepted,
    baseline: noBaseline,
    promised: nothingPromised,
  };
}

type StepInput = {
  readonly elapsedMs: number;
  readonly sample?: Sample;
  /** Pods have already braked by themselves. */
  readonly restrained?: boolean;
};

/** The state after `elapsedMs` more, in which calls ended as in the sample. */
export function step(
  settings: ControllerSettings,
  before: ControllerState,
  input: StepInput,
): ControllerState {
  const elapsedMs = Math.max(0, input.elapsedMs);
  const sample = input.sample;
  const observed = withObservations(settings, before, { elapsedMs, ...(sample && { sample }) });
  const fitted = withSettings(settings, observed);
  if (settings.pinned !== null) return fitted;

  // Calls of an earlier epoch were already reacted to, or say nothing about the present limit.
  const counts = sample ? asOf(sample, fitted.epoch).counts : noCounts;
  const breaker = settings.breaker
    ? nextBreaker(fitted.breaker, settings.breaker, { sample, counts })
    : closedBreaker;
  if (breaker.state !== before.breaker.state)
    return afterBreakerChange(settings, { ...fitted, breaker });
  if (breaker.state !== "closed") return { ...fitted, breaker };

  const refilled = withRefill(settings, { ...fitted, breaker }, { elapsedMs, sample, counts });
  const { restrained = false } = input;
  return afterDecision(settings, refilled, { elapsedMs, sample, counts, restrained });
}

/** Why a step has led to another limit or another state of the breaker. */
export type LearnedCause =
  | "learned_up"
  /** The downstream's answers state a rate that allows more. */
  | "promised"
  /** Calls were refused for lack of capacity. */
  | "refused"
  /** Too many calls timed out or failed. */
  | "errors"
  /** Calls took longer than they do under less load. */
  | "slow"
  /** Lower for another reason of the algorithm. */
  | "lowered"
  /** The options in code are others now. */
  | "settings"
  | "unpinned"
  | "breaker_opened"
  | "breaker_half_opened"
  | "breaker_closed";

const breakerCauses = {
  open: "breaker_opened",
  half_open: "breaker_half_opened",
  closed: "breaker_closed",
} as const;

/** Pure: the cause of what a step has changed, found in what it was given. */
export function causeOf(
  settings: ControllerSettings,
  before: ControllerState,
  after: ControllerState,
  input: StepInput,
): LearnedCause {
  if (after.breaker.state !== before.breaker.state) return breakerCauses[after.breaker.state];
  if (before.pinned !== null && settings.pinned === null) return "unpinned";
  const elapsedMs = Math.max(0, input.elapsedMs);
  const { sample } = input;
  const observed = withObservations(settings, before, { elapsedMs, ...(sample && { sample }) });
  const fitted = withSettings(settings, observed);
  if (settings.pinned !== null || fitted.limit !== before.limit) return "settings";
  if (after.limit > before.limit) {
    const calls = promisedCalls(after.promised, windowDurations(after.windows).latencies);
    const isPromised = calls !== undefined && after.limit === clamped(settings, calls);
    return isPromised ? "promised" : "learned_up";
  }
  const counts = sample ? asOf(sample, fitted.epoch).counts : noCounts;
  const evidence = {
    ...evidenceOf(settings, fitted, { elapsedMs, sample, counts }),
    restrained: input.restrained ?? false,
  };
  if (evidence.struck !== null) return evidence.struck === "throttled" ? "refused" : "errors";
  return isSlow(evidence) ? "slow" : "lowered";
}

export function allowanceOf(
  settings: ControllerSettings,
  state: ControllerState,
): LearnedAllowance {
  const { epoch, holdMs, breaker, refill } = state;
  const perS = refill?.perS ?? null;
  const base = { epoch, breaker: breaker.state, ...(perS !== null && { refillPerS: perS }) };
  if (settings.pinned !== null) return { ...base, limit: settings.pinned, holdMs };
  switch (breaker.state) {
    case "closed":
      return { ...base, limit: state.limit, holdMs };
    case "open":
      return { ...base, limit: 0, holdMs: Math.max(holdMs, breaker.remainingMs) };
    case "half_open":
      return { ...base, limit: Math.min(state.limit, settings.breaker?.probes ?? 1), holdMs };
  }
}

function withObservations(
  settings: ControllerSettings,
  state: ControllerState,
  input: StepInput,
): ControllerState {
  const { elapsedMs, sample } = input;
  const aged: ControllerState = {
    ...state,
    holdMs: remainingHoldMs(state.holdMs, {
      elapsedMs,
      retryAfterMs: sample?.retryAfterMs ?? 0,
      maxMs: settings.maxHoldMs,
    }),
    breaker: cooledBreaker(state.breaker, elapsedMs),
    windows: agedWindows(state.windows, elapsedMs),
    round: agedRound(state.round, elapsedMs),
    promised: nextPromised(state.promised, elapsedMs, sample),
  };
  if (!sample) return aged;
  const windows = withWindows(aged.windows, sample);
  const round = sample.epoch === state.epoch ? withSample(aged.round, sample) : aged.round;
  const used = isUsed(round, state.limit);
  return {
    ...aged,
    windows,
    round,
    accepted: addAccepted(state.accepted, sample),
    baseline: settings.latency
      ? movedBaseline(state.baseline, windowDurations(windows), settings.latency, {
          elapsedMs,
          used,
        })
      : noBaseline,
  };
}

/** Applies settings that may have changed: another pinned limit, other bounds, another algorithm. */
function withSettings(settings: ControllerSettings, state: ControllerState): ControllerState {
  const limit = clamped(settings, state.limit);
  const known = state.memory.algorithm === settings.algorithm;
  const refill = settings.bucket ? (state.refill ?? firstRefill(settings.bucket)) : null;
  const next = {
    ...state,
    limit,
    refill,
    pinned: settings.pinned,
    memory: known ? state.memory : firstMemory(settings.algorithm),
  };
  return limit === state.limit && state.pinned === settings.pinned ? next : inNewEpoch(next);
}

type Observations = {
  readonly elapsedMs: number;
  readonly sample: Sample | undefined;
  readonly counts: OutcomeCounts;
};

function withRefill(
  settings: ControllerSettings,
  state: ControllerState,
  observations: Observations,
): ControllerState {
  if (!settings.bucket || !state.refill) return state;
  const { elapsedMs, sample, counts } = observations;
  const limited = counts.throttled > 0 && (sample?.rateLimited ?? 0) > 0;
  const used = sample?.used ?? 0;
  const refill = nextRefill(state.refill, settings.bucket, { elapsedMs, used, limited });
  return limited ? inNewEpoch({ ...state, refill }) : { ...state, refill };
}

/** The breaker's state has changed: earlier counts say nothing about the calls to come. */
function afterBreakerChange(settings: ControllerSettings, state: ControllerState): ControllerState {
  if (state.breaker.state !== "closed") return inNewEpoch(state);
  return inNewEpoch({
    ...state,
    limit: clamped(settings, braked(state.limit)),
    memory: afterOutage(state.memory, state.limit),
  });
}

function afterDecision(
  settings: ControllerSettings,
  state: ControllerState,
  observations: Observations & { readonly restrained: boolean },
): ControllerState {
  const evidence = {
    ...evidenceOf(settings, state, observations),
    restrained: observations.restrained,
  };
  const {
    limit: decided,
    memory,
    reacted,
    coolMs = 0,
    rebase,
  } = decideLimit(state.memory, evidence);
  const grown = reacted || isSlow(evidence) ? undefined : grownByPromise(state, decided, memory);
  const limit = clamped(settings, grown?.limit ?? decided);
  const next: ControllerState = {
    ...state,
    limit,
    memory: grown?.memory ?? memory,
    holdMs: Math.max(state.holdMs, coolMs),
    baseline: rebase ? rebased(state.baseline, state.round) : state.baseline,
  };
  // At the minimum a strike doesn't change the limit, but the calls in flight with it are still one burst.
  if (limit !== state.limit || reacted) return inNewEpoch(next);
  return evidence.proven ? { ...next, round: nextRound(state.round) } : next;
}

/** While no ceiling is known, a promised rate is reason enough for the calls at once that it amounts to. */
function grownByPromise(
  { promised, windows }: ControllerState,
  limit: number,
  memory: Memory,
): { limit: number; memory: Memory } | undefined {
  const calls = promisedCalls(promised, windowDurations(windows).latencies);
  if (calls === undefined || calls <= limit) return undefined;
  switch (memory.algorithm) {
    case "ceiling": {
      const promisedMemory = promisedCeiling(memory);
      return promisedMemory && { limit: calls, memory: promisedMemory };
    }
    case "aimd":
      return { limit: calls, memory };
    case "gradient": {
      const ceiling = promisedCeiling(memory.ceiling);
      return ceiling && { limit: calls, memory: { ...memory, ceiling } };
    }
  }
}

function evidenceOf(
  settings: ControllerSettings,
  state: ControllerState,
  observations: Observations,
): Omit<Evidence, "restrained"> {
  const { limit, round, windows, baseline, accepted } = state;
  const { elapsedMs, sample, counts } = observations;
  // Calls that were refused for their rate lower the refill, or wait on their pod for the downstream's
  // own reset. They say nothing about calls at once.
  const byRate = sample && (settings.bucket || sample.promisedPerS > 0) ? sample.rateLimited : 0;
  const throttled = counts.throttled > byRate;
  const failing =
    counts.timeout + counts.server_error > 0 && tooManyErrors(latelyCounts(round), settings.errors);
  return {
    limit,
    elapsedMs,
    struck: throttled ? "throttled" : failing ? "errors" : null,
    timedOut: counts.timeout > 0,
    recent: recentCounts(round),
    proven: isProven(round, limit),
    calm: sample !== undefined && isCalm(sample, limit),
    slowness: slowness(baseline, round) ?? slowness(baseline, windowDurations(windows)) ?? null,
    tolerance: settings.latency?.tolerance ?? Infinity,
    errorRise: errorRise(windows.counts.older, latelyCounts(round), settings.errors),
    accepted: acceptedAtOnce(accepted) ?? null,
  };
}

function inNewEpoch(state: ControllerState): ControllerState {
  return { ...state, epoch: state.epoch + 1, round: emptyRound };
}

function clamped({ min, max }: ControllerSettings, limit: number): number {
  return Math.max(min, Math.min(max, limit));
}

type Memory = CeilingMemory | AimdMemory | GradientMemory;

function firstMemory(algorithm: Algorithm): Memory {
  switch (algorithm) {
    case "ceiling":
      return firstCeilingMemory;
    case "aimd":
      return firstAimdMemory;
    case "gradient":
      return firstGradientMemory;
  }
}

function decideLimit(memory: Memory, evidence: Evidence): LimitDecision<Memory> {
  switch (memory.algorithm) {
    case "ceiling":
      return decideCeiling(memory, evidence);
    case "aimd":
      return decideAimd(memory, evidence);
    case "gradient":
      return decideGradient(memory, evidence);
  }
}

/** After an outage: as after a brake, with the limit before it as the ceiling to return to. */
function afterOutage(memory: Memory, limit: number): Memory {
  switch (memory.algorithm) {
    case "ceiling":
      return brakedMemory(ceilingOf(memory, limit), 1);
    case "aimd":
      return memory;
    case "gradient":
      return { ...memory, ceiling: brakedMemory(ceilingOf(memory.ceiling, limit), 1) };
  }
}
