/**
 * H1, checked after every commit and at every call: what pods have in flight, as the downstream counts
 * it, is covered by what the row says they hold; and what they hold together is within the bound.
 */
import { silentAfterMs } from "../../../src/throttles/shares/silence.ts";
import type { CallConstraints, ShareEntries } from "../../../src/throttles/shares/sql.ts";
import type { World } from "../world.ts";
import type { Downstream } from "./downstream.ts";
import { leaseMs, longestMs } from "./settings.ts";

export type RowSeen = {
  readonly rev: number;
  readonly bound: number;
  readonly epoch: number;
  readonly shares: ShareEntries;
  readonly constraints: CallConstraints;
};

export type SweepOptions = {
  readonly downstream: () => Downstream;
  /** The process was seen to be gone by one on its machine, so what it had begun isn't waited for. */
  readonly isForgiven: (podId: string) => boolean;
};

export type Sweep = ReturnType<typeof createSweep>;

// Whatever a pod does about a bound that has fallen, it does within its lease and a call.
const learnedWithinMs = (leaseMs + longestMs) * 1.02 + 2_000;

export function createSweep(world: World, { downstream, isForgiven }: SweepOptions) {
  const { scheduler, violate } = world;
  let row: RowSeen | undefined;
  /** Bounds of late, with the time until which each was the bound. */
  let bounds: { bound: number; untilMs: number }[] = [];
  let peak = 0;
  /** Pods that were made up for, and until when their calls are. */
  const silentOfLate = new Map<string, number>();
  const seqs = new Map<string, number>();
  const reportedMs = new Map<string, number>();
  /** When a pod was last found to have been silent. */
  const silentMs = new Map<string, number>();

  /** Pods whose permits others may use, because the leader takes them for gone, until they renew. */
  const madeUpFor = ({ shares, constraints }: RowSeen) =>
    Object.entries(shares).filter(
      ([podId, { renewal }]) => constraints.silent?.[podId] === renewal,
    );

  const held = (at: RowSeen | undefined): number => {
    if (!at) return 0;
    const all = Object.values(at.shares).reduce((sum, { share }) => sum + share, 0);
    return all - madeUpFor(at).reduce((sum, [, { share }]) => sum + share, 0);
  };

  const isSilent = (podId: string): boolean =>
    scheduler.nowMs - (reportedMs.get(podId) ?? -Infinity) >= silentAfterMs ||
    scheduler.nowMs - (silentMs.get(podId) ?? -Infinity) < learnedWithinMs;

  /** The bounds that there were within that time, to now. */
  const boundsWithin = (durationMs: number): number[] => [
    ...bounds
      .filter(({ untilMs }) => scheduler.nowMs - untilMs < durationMs)
      .map(({ bound }) => bound),
    row?.bound ?? 0,
  ];

  /** Every call that a pod may have in flight is covered by its share. */
  const look = (): void => {
    const counts = new Map<string, number>();
    let all = 0;
    for (const { podId, beganMs } of downstream().calls) {
      // A process that is stopped can't hang up in time: that is the slack that is stated.
      if (scheduler.nowMs - beganMs > longestMs + 1 || isForgiven(podId)) continue;
      counts.set(podId, (counts.get(podId) ?? 0) + 1);
      // Others may use its permits, which is the slack that is stated.
      if (!silentOfLate.has(podId)) all++;
    }
    for (const [podId, count] of counts) {
      const share = row?.shares[podId]?.share ?? 0;
      if (count > share) violate("H1", `${podId} has ${count} calls in flight and holds ${share}`);
    }
    for (const [podId, untilMs] of silentOfLate) {
      if (scheduler.nowMs > untilMs) silentOfLate.delete(podId);
    }
    bounds = bounds.filter(({ untilMs }) => scheduler.nowMs - untilMs < learnedWithinMs);
    const most = Math.max(...boundsWithin(learnedWithinMs));
    if (all > most) violate("H1", `${all} calls are in flight, and the bound was ${most} at most`);
    peak = Math.max(peak, all);
  };

  /** The row as it is now, after a commit. */
  const committed = (next: RowSeen | undefined, who: string): void => {
    const before = row;
    row = next;
    if (!next) return;
    if (before && next.rev === before.rev) return look();
    if (before && next.rev < before.rev) violate("H1", `${who} has set the revision back`);
    if (before && next.epoch < before.epoch) violate("H1", `${who} has set the epoch back`);
    for (const podId of Object.keys(before?.shares ?? {})) {
      if (podId !== who && !next.shares[podId]) world.count("throttle: a share taken over");
    }
    if (before && next.bound !== before.bound) {
      world.count(`throttle: the bound ${next.bound > before.bound ? "rose" : "fell"}`);
      bounds.push({ bound: before.bound, untilMs: scheduler.nowMs });
    }
    const had = held(before);
    const has = held(next);
    for (const [podId] of madeUpFor(next)) {
      if (!silentOfLate.has(podId)) world.count("throttle: made up for a silent pod");
      silentOfLate.set(podId, scheduler.nowMs + learnedWithinMs);
      if (!isSilent(podId)) violate("H1", `${who} has made up for ${podId}, which reports`);
    }
    const shown = Object.entries(next.shares).map(([podId, { share }]) => `${podId}:${share}`);
    scheduler.note(`${who}: ${has}/${next.bound} ${shown.join(" ")}`);
    const raised = Object.entries(next.shares).filter(
      ([podId, { share }]) => share > (before?.shares[podId]?.share ?? 0),
    );
    if (raised.length > 0 && has > next.bound) {
      violate("H1", `${who} has raised shares from ${had} to ${has}, above ${next.bound}`);
    }
    if (raised.some(([podId]) => podId !== who)) {
      violate("H1", `${who} has raised a share that isn't its own`);
    }
    look();
  };

  /** A pod's last report as it is stored. One that comes late, after a newer one, changes nothing. */
  const reported = (podId: string, seq: number): void => {
    if (seqs.get(podId) === seq) return;
    seqs.set(podId, seq);
    const lastMs = reportedMs.get(podId);
    if (lastMs !== undefined && scheduler.nowMs - lastMs >= silentAfterMs) {
      silentMs.set(podId, scheduler.nowMs);
    }
    reportedMs.set(podId, scheduler.nowMs);
  };

  return {
    look,
    committed,
    reported,
    held,
    boundsWithin,
    get row() {
      return row;
    },
    get peak() {
      return peak;
    },
  };
}
