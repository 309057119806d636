import type { Clock } from "../../base/clock.ts";
import type { Limiter } from "../limiter/limiter.ts";
import { type ShareDecision, decideShare } from "./allocate.ts";
import {
  type ShareEntry,
  grantedShare,
  hasExpired,
  type Lease,
  leaseAfterRead,
  type RoundTrip,
  noLease,
  nothingObserved,
  writeRefused,
  writeSent,
  type ShareWrite,
  type ObservedMarks,
  observeMarks,
} from "./lease.ts";
import { countedPermits, isCounted, silentAfterMs } from "./silence.ts";
import type { ThrottleId, ReportRow, SharedRow } from "./sql.ts";
import { addToTotals, noTotals, type Totals } from "./totals.ts";

/** The part of a limiter that sharing needs. */
export type SharedLimiter = Pick<
  Limiter,
  | "name"
  | "key"
  | "settings"
  | "allow"
  | "takeSample"
  | "demand"
  | "callsLastMs"
  | "onDemand"
  | "onThrottled"
  | "onRate"
>;

export type HolderOptions = {
  readonly podId: string;
  readonly limiter: SharedLimiter;
  readonly clock: Clock;
  /** Returns a number that no other write of this pod has. */
  readonly nextRenewal: () => number;
  /** Identifies this process, where other processes on the machine can check that it is gone. */
  readonly host?: string | undefined;
  readonly isGone?: ((host: string) => boolean) | undefined;
};

/** One write of the row's shares, and the lease's record of it. */
export type Change = { readonly sent: ShareWrite; readonly shares: string };

export type DemandRow = { readonly podId: string; readonly seq: number; readonly demand: number };

export type Holder = ReturnType<typeof createHolder>;

const idleAfterMs = 5_000;

/**
 * One limiter's share of the fleet's permits: what the pod holds, what it has observed of the other
 * pods, and what it should hold instead. It does no I/O itself; `shares.ts` does.
 */
export function createHolder(options: HolderOptions) {
  const { podId, limiter, clock, nextRenewal, host, isGone } = options;
  const throttleId: ThrottleId = { name: limiter.name, key: limiter.key };
  const { leaseMs } = limiter.settings;
  let lease: Lease = noLease;
  let row: SharedRow | undefined;
  let renewals: ObservedMarks<number> = nothingObserved;
  let reports: ObservedMarks<number> = nothingObserved;
  let demands = new Map<string, number>();
  /** Pods whose process is gone. Their last reports may still be stored. */
  const gone = new Set<string>();
  let totals: Totals = noTotals;
  let seq = 0;
  let cap = 0;
  let epoch = 0;
  let owed = false;
  let peak = 0;
  let lastDemandMs = -Infinity;
  let holdUntilMs = 0;
  let quiet = true;
  let leaving = false;

  const demandNow = () => {
    const { inFlight, waiting, blockedTasks } = limiter.demand();
    const all = waiting + blockedTasks;
    return { inFlight, callsWaiting: waiting, waiting: all, demand: inFlight + all };
  };

  /** Applies the share and the constraints to the limiter. */
  const apply = (): void => {
    const { limit, untilMs } = grantedShare(lease, leaseMs);
    const own = Math.min(limit, cap);
    const { constraints } = row ?? {};
    const all = row ? countedPermits(row.shares, constraints?.silent) : 0;
    // While pods still hold shares of a higher bound, calls say nothing about the new bound.
    if (row && all <= row.bound) epoch = row.epoch;
    const part = all > 0 ? own / all : 0;
    limiter.allow({
      limit: own,
      epoch,
      holdMs: Math.max(0, holdUntilMs - clock.monotonic()),
      breaker: constraints?.breaker ?? "closed",
      untilMs,
      part,
      ...(constraints?.refillPerS !== undefined && { refillPerS: constraints.refillPerS * part }),
    });
  };

  const hasGone = ({ host: of }: ShareEntry) => of !== undefined && isGone?.(of) === true;
  const isExpired = (id: string, entry: ShareEntry): boolean =>
    hasExpired(entry, renewals.seen.get(id)) || hasGone(entry);

  /** The row was read by this pod, or written by it. */
  const observeRow = (next: SharedRow, roundTrip: RoundTrip): void => {
    // A hold counts once per pass, from when this pod first reads it.
    if (next.pass !== row?.pass) holdUntilMs = clock.monotonic() + next.constraints.holdMs;
    row = next;
    const others = Object.entries(next.shares).filter(([id]) => id !== podId);
    const marks = new Map(others.map(([id, entry]) => [id, entry.renewal]));
    renewals = observeMarks(renewals, marks, roundTrip);
    lease = leaseAfterRead(lease, next.rev, next.shares[podId]);
    cap = Math.min(cap, next.shares[podId]?.share ?? 0);
  };

  const situation = (now: SharedRow) => {
    const { inFlight, demand } = demandNow();
    const mine = Math.max(demand, peak);
    const idle = leaving || clock.monotonic() - lastDemandMs >= idleAfterMs;
    const standing = Object.entries(now.shares).filter(
      ([id, entry]) => id !== podId && !isExpired(id, entry),
    );
    const ids = new Set([...standing.map(([id]) => id), ...demands.keys()]);
    ids.delete(podId);
    for (const [id, entry] of Object.entries(now.shares)) if (hasGone(entry)) gone.add(id);
    for (const id of gone) if (!ids.delete(id)) gone.delete(id);
    const { silent } = now.constraints;
    const shares = new Map(
      standing.map(([id, entry]) => [id, isCounted(id, entry, silent) ? entry.share : 0]),
    );
    const others = [...ids].map((id) => ({
      podId: id,
      share: shares.get(id) ?? 0,
      demand: demands.get(id) ?? 0,
      silent: (reports.seen.get(id)?.forMs ?? silentAfterMs) >= silentAfterMs,
    }));
    const me = {
      podId,
      share: now.shares[podId]?.share ?? 0,
      inFlight,
      demand: leaving ? 0 : mine,
      idle,
    };
    return { situation: { bound: now.bound, nowMs: now.nowMs, me, others }, standing };
  };

  /** The next write, if any. From here on the pod grants no more than the write would leave it. */
  const change = (): Change | undefined => {
    if (!row) return undefined;
    const { situation: seen, standing } = situation(row);
    const decision: ShareDecision = decideShare(seen);
    cap = decision.limit;
    owed = decision.owed;
    apply();
    const nowMs = clock.monotonic();
    const mine = row.shares[podId];
    // Another write settles an unconfirmed one: either it is stored, or the row has changed.
    const due =
      lease.unconfirmed.length > 0 ||
      (mine !== undefined && nowMs - (lease.confirmed?.sentMs ?? -Infinity) >= leaseMs / 3);
    if (decision.share === (mine?.share ?? 0) && !due) return undefined;
    const { share } = decision;
    const renewal = nextRenewal();
    const entry: ShareEntry = {
      share,
      renewal,
      leaseMs,
      longestMs: limiter.callsLastMs(),
      ...(host !== undefined && { host }),
    };
    const sent = { share, renewal, rev: row.rev, sentMs: nowMs };
    lease = writeSent(lease, sent);
    const shares = Object.fromEntries([...standing, ...(share > 0 ? [[podId, entry]] : [])]);
    return { sent, shares: JSON.stringify(shares) };
  };

  return {
    place: throttleId,
    limiter,

    /** This pod's report now. */
    report(): ReportRow {
      const sample = limiter.takeSample();
      // Time without demand says nothing about what the downstream takes.
      totals = addToTotals(totals, quiet ? { ...sample, spanMs: 0 } : sample);
      const { inFlight, waiting, callsWaiting, demand } = demandNow();
      peak = sample.peak;
      const reportedDemand = leaving ? 0 : Math.max(demand, peak);
      if (reportedDemand > 0) lastDemandMs = clock.monotonic();
      quiet = reportedDemand === 0;
      seq++;
      return {
        ...throttleId,
        podId,
        seq,
        demand: reportedDemand,
        inFlight,
        waiting,
        callsWaiting,
        totals: JSON.stringify(totals),
      };
    },

    onRow(next: SharedRow, roundTrip: RoundTrip): void {
      observeRow(next, roundTrip);
      // Where the bound has fallen, no call begins under the old share, even before the write lowers it.
      if (countedPermits(next.shares, next.constraints.silent) > next.bound) {
        cap = Math.min(cap, decideShare(situation(next).situation).limit);
      }
      apply();
    },

    /** The demands that all pods have reported. */
    onReports(all: readonly DemandRow[], roundTrip: RoundTrip): void {
      demands = new Map(all.map((each) => [each.podId, each.demand]));
      reports = observeMarks(
        reports,
        new Map(all.map((each) => [each.podId, each.seq])),
        roundTrip,
      );
    },

    change,

    /** A write is known not to be stored, now or later. */
    onRefused(sent: ShareWrite): void {
      lease = writeRefused(lease, sent);
      apply();
    },

    /** Returns all permits that aren't in flight, and has no demand any more. */
    leave(): void {
      leaving = true;
    },

    get row() {
      return row;
    },
    /** How many permits may be granted. */
    get limit() {
      return Math.min(grantedShare(lease, leaseMs).limit, cap);
    },
    get owed() {
      return owed;
    },
    /** The share is above the cap until calls have ended. */
    get lowering() {
      return row !== undefined && cap < (row.shares[podId]?.share ?? 0);
    },
    /** Enough calls have ended for the share to be lowered to the cap. */
    get lowered() {
      return demandNow().inFlight <= cap;
    },
    /** No share, no demand, no unconfirmed write, and the last report had no demand. */
    get atRest() {
      const nothing = lease.confirmed === undefined && lease.unconfirmed.length === 0;
      return nothing && quiet && demandNow().demand === 0;
    },
    get leaving() {
      return leaving;
    },
  };
}
