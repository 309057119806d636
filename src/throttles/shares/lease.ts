/**
 * What a pod may believe about its own share. Pure.
 *
 * A share is held for a lease that is counted from before its renewal was sent, on the pod's own
 * monotonic clock, and only renewals count that are known to be stored. While the answer to one is
 * missing, it may be stored or not, or be yet: the lowest of what may be in the row is what counts. The
 * number that each renewal carries tells on the next look which it was; and a write that was compared
 * with a revision that is over can't land any more.
 */
export type ShareEntry = {
  readonly share: number;
  /** Another with every write of this pod. */
  readonly renewal: number;
  /** How long the pod goes by it without another renewal. */
  readonly leaseMs: number;
  /** How long a call of this pod may last, so that others know when what it granted last is over. */
  readonly longestMs: number;
  /** Which process it is, where others on its machine could tell that it is gone. */
  readonly host?: string;
};

export type ShareWrite = {
  /** Zero where the write gives everything back. */
  readonly share: number;
  readonly renewal: number;
  /** The revision that the row must have for it to be stored. */
  readonly rev: number;
  readonly sentMs: number;
};

export type Lease = {
  /** What is known to be stored. */
  readonly confirmed: { share: number; renewal: number; sentMs: number } | undefined;
  /** What was sent and may have been stored, or may still be. */
  readonly unconfirmed: readonly ShareWrite[];
};

export const noLease: Lease = { confirmed: undefined, unconfirmed: [] };

export function writeSent(lease: Lease, sent: ShareWrite): Lease {
  return { ...lease, unconfirmed: [...lease.unconfirmed, sent] };
}

/** It is known that this write wasn't stored and won't be. */
export function writeRefused(lease: Lease, { renewal }: ShareWrite): Lease {
  return { ...lease, unconfirmed: lease.unconfirmed.filter((each) => each.renewal !== renewal) };
}

/** The row was read, or written by this pod: it is at `rev` and says this of the pod. */
export function leaseAfterRead(lease: Lease, rev: number, entry: ShareEntry | undefined): Lease {
  const unconfirmed = lease.unconfirmed.filter((each) => each.rev >= rev);
  if (entry === undefined) return { confirmed: undefined, unconfirmed };
  const { share, renewal } = entry;
  const sent = lease.unconfirmed.find((each) => each.renewal === renewal);
  if (sent) return { confirmed: { share, renewal, sentMs: sent.sentMs }, unconfirmed };
  if (lease.confirmed?.renewal === renewal) return { confirmed: lease.confirmed, unconfirmed };
  // Nothing that this pod remembers, so it can't say since when that is good.
  return { confirmed: { share, renewal, sentMs: -Infinity }, unconfirmed };
}

type GrantedShare = {
  readonly limit: number;
  /** From this moment on nothing may be granted, unless the lease is renewed. */
  readonly untilMs: number;
};

/** What may be granted on the strength of what is known. */
export function grantedShare({ confirmed, unconfirmed }: Lease, leaseMs: number): GrantedShare {
  if (confirmed === undefined) return { limit: 0, untilMs: -Infinity };
  const limit = unconfirmed.reduce((least, { share }) => Math.min(least, share), confirmed.share);
  return { limit, untilMs: confirmed.sentMs + leaseMs };
}

/**
 * What a pod has seen of the others, by its own monotonic clock. Pure.
 *
 * A share has expired when its renewal was the same for the lease and the longest call of whoever holds
 * it: counted from after the answer in which it was first seen, until before the question that saw it
 * last. The holder counts its lease from before it sent the renewal, so it has stopped before that,
 * whatever the clocks on the walls say. After a gap the count begins anew: then it may have been the
 * store that was away, and nobody could renew.
 */
type ObservedMark<Mark> = {
  readonly mark: Mark;
  readonly sinceMs: number;
  readonly forMs: number;
};

export type ObservedMarks<Mark> = {
  readonly lastReadMs: number | undefined;
  readonly seen: ReadonlyMap<string, ObservedMark<Mark>>;
};

export const nothingObserved: ObservedMarks<never> = { lastReadMs: undefined, seen: new Map() };

export type RoundTrip = {
  /** Before the question was sent, and after its answer came. */
  readonly askedMs: number;
  readonly answeredMs: number;
};

// Whoever needs what others hold looks every second.
const gapMs = 10_000;

export function observeMarks<Mark>(
  before: ObservedMarks<Mark>,
  marks: ReadonlyMap<string, Mark>,
  { askedMs, answeredMs }: RoundTrip,
): ObservedMarks<Mark> {
  const gap = before.lastReadMs === undefined || askedMs - before.lastReadMs > gapMs;
  const seen = new Map<string, ObservedMark<Mark>>();
  for (const [podId, mark] of marks) {
    const known = before.seen.get(podId);
    const same = known !== undefined && known.mark === mark && !gap;
    seen.set(
      podId,
      same ? { ...known, forMs: askedMs - known.sinceMs } : { mark, sinceMs: answeredMs, forMs: 0 },
    );
  }
  return { lastReadMs: answeredMs, seen };
}

// Clocks that run at different speeds, by far more than any does.
const drift = 1.02;

export function hasExpired(
  { leaseMs, longestMs }: Pick<ShareEntry, "leaseMs" | "longestMs">,
  seen: ObservedMark<number> | undefined,
): boolean {
  return seen !== undefined && seen.forMs >= (leaseMs + longestMs) * drift;
}
