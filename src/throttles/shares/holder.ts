import type { Clock } from "../../base/clock.ts";
import type { Limiter } from "../limiter/limiter.ts";
import { type Decision, decide } from "./allocate.ts";
import {
  type Entry,
  granted,
  hasExpired,
  type Lease,
  look,
  type Look,
  noLease,
  nothingSeen,
  refused,
  send,
  type Sent,
  type Watch,
  watch,
} from "./lease.ts";
import type { Place, ReportRow, SharedRow } from "./sql.ts";
import { addToTotals, noTotals, type Totals } from "./fleet-learning.ts";

/** What a limiter is to those who give it its share. */
export type SharedLimiter = Pick<
  Limiter,
  | "name"
  | "key"
  | "settings"
  | "allow"
  | "takeSample"
  | "demand"
  | "callsLastMs"
  | "onWant"
  | "onThrottled"
>;

export type HolderOptions = {
  readonly podId: string;
  readonly limiter: SharedLimiter;
  readonly clock: Clock;
  /** A number that no other write of this pod has. */
  readonly nextRenewal: () => number;
  /** Which process this is, where others on the machine could tell that it is gone. */
  readonly host?: string | undefined;
  readonly isGone?: ((host: string) => boolean) | undefined;
};

/** What one write is to change, and what is known of it beforehand. */
export type Change = { readonly sent: Sent; readonly shares: string };

export type DemandRow = { readonly podId: string; readonly seq: number; readonly demand: number };

export type Holder = ReturnType<typeof createHolder>;

// A pod that reports every second and is silent for so long is cut off or gone.
const silentAfterMs = 5_000;
const idleAfterMs = 5_000;

/**
 * One limiter's part of the fleet's permits: what the pod holds, what it has seen of the others, and
 * what it should hold instead. It reads and writes nothing itself; `shares.ts` does.
 */
export function createHolder(options: HolderOptions) {
  const { podId, limiter, clock, nextRenewal, host, isGone } = options;
  const place: Place = { name: limiter.name, key: limiter.key };
  const { leaseMs } = limiter.settings;
  let lease: Lease = noLease;
  let row: SharedRow | undefined;
  let renewals: Watch<number> = nothingSeen;
  let reports: Watch<number> = nothingSeen;
  let demands = new Map<string, number>();
  /** Pods whose process is gone: their last reports may still be there. */
  const gone = new Set<string>();
  let totals: Totals = noTotals;
  let seq = 0;
  let cap = 0;
  let epoch = 0;
  let owed = false;
  let peak = 0;
  let wantedMs = -Infinity;
  let holdUntilMs = 0;
  let quiet = true;
  let leaving = false;

  const demandNow = () => {
    const { inFlight, waiting, behindGate } = limiter.demand();
    const all = waiting + behindGate;
    return { inFlight, callsWaiting: waiting, waiting: all, demand: inFlight + all };
  };

  /** Lets the limiter go by what is known now. */
  const apply = (): void => {
    const { limit, untilMs } = granted(lease, leaseMs);
    const own = Math.min(limit, cap);
    const { gate } = row ?? {};
    const all = row ? sumOf(Object.values(row.shares)) : 0;
    // Calls that begin while somebody still holds what he had of a higher bound tell nothing of this one.
    if (row && all <= row.bound) epoch = row.epoch;
    const part = all > 0 ? own / all : 0;
    limiter.allow({
      limit: own,
      epoch,
      holdMs: Math.max(0, holdUntilMs - clock.monotonic()),
      breaker: gate?.breaker ?? "closed",
      untilMs,
      ...(gate?.refillPerS !== undefined && { refillPerS: gate.refillPerS * part }),
    });
  };

  const hasGone = ({ host: of }: Entry) => of !== undefined && isGone?.(of) === true;
  const isExpired = (id: string, entry: Entry): boolean =>
    hasExpired(entry, renewals.seen.get(id)) || hasGone(entry);

  /** The row was read by this pod, or written by it. */
  const seeRow = (next: SharedRow, seen: Look): void => {
    // What was said once is counted once, from when it was first heard of.
    if (next.pass !== row?.pass) holdUntilMs = clock.monotonic() + next.gate.holdMs;
    row = next;
    const others = Object.entries(next.shares).filter(([id]) => id !== podId);
    const marks = new Map(others.map(([id, entry]) => [id, entry.renewal]));
    renewals = watch(renewals, marks, seen);
    lease = look(lease, next.rev, next.shares[podId]);
    cap = Math.min(cap, next.shares[podId]?.share ?? 0);
  };

  const situation = (now: SharedRow) => {
    const { inFlight, demand } = demandNow();
    const mine = Math.max(demand, peak);
    const idle = leaving || clock.monotonic() - wantedMs >= idleAfterMs;
    const standing = Object.entries(now.shares).filter(
      ([id, entry]) => id !== podId && !isExpired(id, entry),
    );
    const ids = new Set([...standing.map(([id]) => id), ...demands.keys()]);
    ids.delete(podId);
    for (const [id, entry] of Object.entries(now.shares)) if (hasGone(entry)) gone.add(id);
    for (const id of gone) if (!ids.delete(id)) gone.delete(id);
    const shares = new Map(standing.map(([id, { share }]) => [id, share]));
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

  /** What to write, if anything. From here on no more is granted than what it would leave. */
  const change = (): Change | undefined => {
    if (!row) return undefined;
    const { situation: seen, standing } = situation(row);
    const decision: Decision = decide(seen);
    cap = decision.limit;
    owed = decision.owed;
    apply();
    const nowMs = clock.monotonic();
    const mine = row.shares[podId];
    // Another write settles what is in doubt: either it is stored, or the row has changed.
    const due =
      lease.doubtful.length > 0 ||
      (mine !== undefined && nowMs - (lease.known?.sentMs ?? -Infinity) >= leaseMs / 3);
    if (decision.share === (mine?.share ?? 0) && !due) return undefined;
    const { share } = decision;
    const renewal = nextRenewal();
    const entry: Entry = {
      share,
      renewal,
      leaseMs,
      longestMs: limiter.callsLastMs(),
      ...(host !== undefined && { host }),
    };
    const sent = { share, renewal, rev: row.rev, sentMs: nowMs };
    lease = send(lease, sent);
    const shares = Object.fromEntries([...standing, ...(share > 0 ? [[podId, entry]] : [])]);
    return { sent, shares: JSON.stringify(shares) };
  };

  return {
    place,
    limiter,

    /** What this pod has to say now. */
    report(): ReportRow {
      const sample = limiter.takeSample();
      // Time in which nothing was wanted says nothing about what the downstream takes.
      totals = addToTotals(totals, quiet ? { ...sample, spanMs: 0 } : sample);
      const { inFlight, waiting, callsWaiting, demand } = demandNow();
      peak = sample.peak;
      const said = leaving ? 0 : Math.max(demand, peak);
      if (said > 0) wantedMs = clock.monotonic();
      quiet = said === 0;
      seq++;
      return {
        ...place,
        podId,
        seq,
        demand: said,
        inFlight,
        waiting,
        callsWaiting,
        totals: JSON.stringify(totals),
      };
    },

    see(next: SharedRow, seen: Look): void {
      seeRow(next, seen);
      // Where the bound has fallen, nothing begins on the strength of a share that has yet to follow it.
      if (sumOf(Object.values(next.shares)) > next.bound) {
        cap = Math.min(cap, decide(situation(next).situation).limit);
      }
      apply();
    },

    /** What all pods have reported. */
    hear(all: readonly DemandRow[], seen: Look): void {
      demands = new Map(all.map((each) => [each.podId, each.demand]));
      reports = watch(reports, new Map(all.map((each) => [each.podId, each.seq])), seen);
    },

    change,

    /** A write is known to have changed nothing, now or later. */
    refused(sent: Sent): void {
      lease = refused(lease, sent);
      apply();
    },

    /** Gives everything back that isn't in flight, and wants nothing any more. */
    leave(): void {
      leaving = true;
    },

    get row() {
      return row;
    },
    /** What may be granted. */
    get limit() {
      return Math.min(granted(lease, leaseMs).limit, cap);
    },
    get owed() {
      return owed;
    },
    /** It holds more than it should, until calls have ended. */
    get lowering() {
      return row !== undefined && cap < (row.shares[podId]?.share ?? 0);
    },
    /** The calls whose end it waits for have ended. */
    get lowered() {
      return demandNow().inFlight <= cap;
    },
    /** Nothing is held, wanted or in doubt, and the last report has said so. */
    get atRest() {
      const nothing = lease.known === undefined && lease.doubtful.length === 0;
      return nothing && quiet && demandNow().demand === 0;
    },
    get leaving() {
      return leaving;
    },
  };
}

function sumOf(entries: readonly Entry[]): number {
  return entries.reduce((sum, { share }) => sum + share, 0);
}
