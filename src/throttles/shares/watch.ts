import type { Entry } from "./lease.ts";

/**
 * What a pod has seen of the others, by its own monotonic clock. Pure.
 *
 * A share has expired when its renewal was the same for the lease and the longest call of whoever holds
 * it: counted from after the answer in which it was first seen, until before the question that saw it
 * last. The holder counts its lease from before it sent the renewal, so it has stopped before that,
 * whatever the clocks on the walls say. After a gap the count begins anew: then it may have been the
 * store that was away, and nobody could renew.
 */
export type Seen<Mark> = {
  readonly mark: Mark;
  readonly sinceMs: number;
  readonly forMs: number;
};

export type Watch<Mark> = {
  readonly lookedMs: number | undefined;
  readonly seen: ReadonlyMap<string, Seen<Mark>>;
};

export const nothingSeen: Watch<never> = { lookedMs: undefined, seen: new Map() };

export type Look = {
  /** Before the question was sent, and after its answer came. */
  readonly askedMs: number;
  readonly answeredMs: number;
};

// Whoever needs what others hold looks every second.
const gapMs = 10_000;

export function watch<Mark>(
  before: Watch<Mark>,
  marks: ReadonlyMap<string, Mark>,
  { askedMs, answeredMs }: Look,
): Watch<Mark> {
  const gap = before.lookedMs === undefined || askedMs - before.lookedMs > gapMs;
  const seen = new Map<string, Seen<Mark>>();
  for (const [podId, mark] of marks) {
    const known = before.seen.get(podId);
    const same = known !== undefined && known.mark === mark && !gap;
    seen.set(
      podId,
      same ? { ...known, forMs: askedMs - known.sinceMs } : { mark, sinceMs: answeredMs, forMs: 0 },
    );
  }
  return { lookedMs: answeredMs, seen };
}

// Clocks that run at different speeds, by far more than any does.
const drift = 1.02;

export function hasExpired(
  { leaseMs, longestMs }: Pick<Entry, "leaseMs" | "longestMs">,
  seen: Seen<number> | undefined,
): boolean {
  return seen !== undefined && seen.forMs >= (leaseMs + longestMs) * drift;
}
