import { yearMs } from "../base/durations.ts";

/**
 * The times of a pattern. Pure: a pattern and a zone always give the same times, so that any leader
 * can continue where another has stopped.
 *
 * A pattern is cron (five fields; a sixth before them for seconds, a seventh after them for years),
 * a nickname such as `@daily`, or `@every 300000`: that many milliseconds, counted from 1970.
 */
export type Times = {
  /** The first time after this one; null if there is none. */
  next(afterMs: number): number | null;
  /** The last time up to this one; null if there is none. */
  last(untilMs: number): number | null;
};

/** What to do about times that came while no pod fired. */
export type Missed = "skip" | "once" | "all";

export const missedPolicies: readonly Missed[] = ["skip", "once", "all"];

/** An interval shorter than the leader's passes could not be kept. */
export const everyRange = { min: 1_000, max: yearMs };

/** What to do about a schedule now. */
export type Plan = {
  /** The times that get a task, oldest first. */
  readonly fire: readonly number[];
  /** How many times get none, counted up to a hundred. */
  readonly skipped: number;
  readonly nextAtMs: number | null;
};

export type Due = {
  /** The row's next time; 0 if it is not computed yet, null if there is none. */
  readonly nextAtMs: number | null;
  readonly afterMs: number;
  readonly missed: Missed;
  /** The most tasks to create, even if more times were missed. */
  readonly max?: number;
};

/** The most times of one schedule that are fired, and counted, at once. */
export const maxTimes = 100;
// Another pod has to take over from a leader that dies, and no time should be lost by that.
const graceMs = 60_000;

/**
 * Pure. A time is missed if another one has come since, or if it is more than a minute late and so
 * not merely waiting for a leader. `skip` fires the last time unless it was missed too, `once`
 * fires the last time however late, and `all` fires them one by one, at most the oldest hundred.
 */
export function planOf(times: Times, row: Due, nowMs: number): Plan {
  const first = row.nextAtMs === 0 ? times.next(row.afterMs) : row.nextAtMs;
  const due: number[] = [];
  let next = first;
  while (next !== null && next <= nowMs && due.length < 2 * maxTimes) {
    due.push(next);
    next = times.next(next);
  }
  if (due.length === 0) return { fire: [], skipped: 0, nextAtMs: next };
  const more = next !== null && next <= nowMs;
  const last = (more ? times.last(nowMs) : null) ?? due.at(-1)!;
  const fire = chosen(row, due, last, nowMs);
  return {
    fire,
    skipped: Math.min(due.length - fire.length, maxTimes),
    nextAtMs: more ? times.next(nowMs) : next,
  };
}

function chosen(
  { missed, max = maxTimes }: Due,
  due: readonly number[],
  last: number,
  nowMs: number,
): readonly number[] {
  switch (missed) {
    case "all":
      return due.slice(0, Math.min(max, maxTimes));
    case "once":
      return [last];
    case "skip":
      return nowMs - last <= graceMs ? [last] : [];
  }
}

// Times of a page that are looked at, because a page is read every few seconds while a person looks.
const maxLookedAt = 300;

/**
 * Pure. Of firings, newest first, how many times came between each and the one before it. Null where there
 * is none before, where it was fired by hand, where the pattern doesn't lead from one to the other, as after
 * a change of it, and where there are too many to look at.
 */
export function skippedBefore(
  times: Pick<Times, "next">,
  scheduledMs: readonly (number | null)[],
): (number | null)[] {
  let looksLeft = maxLookedAt;
  const between = (fromMs: number, toMs: number): number | null => {
    let at: number | null = fromMs;
    for (let skipped = 0; looksLeft > 0; skipped++) {
      looksLeft--;
      at = times.next(at);
      if (at === toMs) return skipped;
      if (at === null || at > toMs) return null;
    }
    return null;
  };
  const before: (number | null)[] = [];
  scheduledMs.reduceRight<number | null>((earlierMs, atMs, index) => {
    before[index] = earlierMs;
    return atMs ?? earlierMs;
  }, null);
  return scheduledMs.map((atMs, index) => {
    const fromMs = before[index]!;
    return atMs === null || fromMs === null ? null : between(fromMs, atMs);
  });
}
