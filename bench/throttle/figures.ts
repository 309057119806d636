import { type Slice, sliceMs } from "./ledger.ts";
import type { Scenario } from "./scenarios.ts";

export type Figures = {
  /** The work that was answered by the work that there was capacity for. */
  readonly use: number;
  /** The share of calls that were refused or timed out. */
  readonly throttled: number;
  /** use × (1 − throttled). */
  readonly score: number;
  /** Both from the change on, adapting included. */
  readonly overall: { readonly use: number; readonly throttled: number };
  /**
   * What is used of the first five seconds since the change, and of the five that follow on the time to adapt.
   * At most all: more only says that units were used as well which had been saved up before.
   */
  readonly first: number;
  readonly soon: number;
  /** How much longer answers took than without company. */
  readonly slowdown: number;
  /** Undefined when it never was. */
  readonly adaptS: number | undefined;
  /** Jain's index of what pods got done. */
  readonly fairness: number;
  /** The most in flight by the true capacity. */
  readonly peak: number;
};

/** A contender has adapted when the five seconds that follow are as good as this. */
const adapted = { slices: 5_000 / sliceMs, use: 0.95, throttled: 0.01 };

export function figuresOf(slices: readonly Slice[], { changedMs, settledMs }: Scenario): Figures {
  const settled = slices.slice(settledMs / sliceMs);
  const use = useOf(settled);
  const throttled = throttledOf(settled);
  const since = slices.slice(Math.floor(changedMs / sliceMs));
  return {
    use,
    throttled,
    score: use * (1 - throttled),
    overall: { use: useOf(since), throttled: throttledOf(since) },
    first: Math.min(1, useOf(since.slice(0, adapted.slices))),
    soon: Math.min(1, useOf(settled.slice(0, adapted.slices))),
    slowdown: sum(settled, (slice) => slice.latencyMs) / sum(settled, (slice) => slice.workMs),
    adaptS: adaptS(since),
    fairness: jain(settled),
    peak: Math.max(...settled.map((slice) => slice.peak / slice.capacity)),
  };
}

export function useOf(slices: readonly Slice[]): number {
  return sum(slices, (slice) => slice.workMs) / sum(slices, (slice) => slice.capacityMs);
}

export function throttledOf(slices: readonly Slice[]): number {
  const lost = sum(slices, ({ counts }) => counts.throttled + counts.timeout);
  const all = sum(slices, ({ counts }) => Object.values(counts).reduce((a, b) => a + b, 0));
  return all === 0 ? 0 : lost / all;
}

function adaptS(slices: readonly Slice[]): number | undefined {
  for (let at = 0; at + adapted.slices <= slices.length; at++) {
    const next = slices.slice(at, at + adapted.slices);
    if (useOf(next) >= adapted.use && throttledOf(next) <= adapted.throttled) {
      return (at * sliceMs) / 1_000;
    }
  }
  return undefined;
}

/** 1 when all got the same, 1/n when one got everything. */
function jain(slices: readonly Slice[]): number {
  const done = new Map<string, number>();
  for (const { byPod } of slices) {
    for (const [podId, count] of byPod) done.set(podId, (done.get(podId) ?? 0) + count);
  }
  const all = [...done.values()];
  const squares = all.reduce((total, each) => total + each ** 2, 0);
  return all.reduce((total, each) => total + each, 0) ** 2 / (all.length * squares);
}

function sum(slices: readonly Slice[], of: (slice: Slice) => number): number {
  let total = 0;
  for (const slice of slices) total += of(slice);
  return total;
}
