/** A pod's entry in the `shares` of a throttle's row. */
export type ShareEntry = {
  readonly share: number;
  /** Differs with every write of this pod. */
  readonly renewal: number;
  /** How long the pod uses the share without another renewal. */
  readonly leaseMs: number;
  /** How long a call of this pod may last, so that other pods know when its last call has ended. */
  readonly longestMs: number;
  /** Identifies the process, where other processes on its machine can check that it is gone. */
  readonly host?: string;
};

export type ShareWrite = {
  /** Zero where the write returns the whole share. */
  readonly share: number;
  readonly renewal: number;
  /** The revision that the row must have for the write to be stored. */
  readonly rev: number;
  readonly sentMs: number;
};

/**
 * What a pod knows about its own share. Pure.
 *
 * A share is held for a lease, counted on the pod's own monotonic clock from before its renewal was
 * sent. Only renewals that are known to be stored count. A write without an answer may be stored, not
 * stored, or stored later: until that is known, the lowest share that may be in the row counts. The
 * next read shows the number of the stored renewal, and a write that compares with an old revision
 * can't be stored any more.
 */
export type Lease = {
  /** The renewal that is known to be stored. */
  readonly confirmed: { share: number; renewal: number; sentMs: number } | undefined;
  /** Writes that may be stored, now or later. */
  readonly unconfirmed: readonly ShareWrite[];
};

export const noLease: Lease = { confirmed: undefined, unconfirmed: [] };

export function writeSent(lease: Lease, sent: ShareWrite): Lease {
  return { ...lease, unconfirmed: [...lease.unconfirmed, sent] };
}

/** This write is known not to be stored, now or later. */
export function writeRefused(lease: Lease, { renewal }: ShareWrite): Lease {
  return { ...lease, unconfirmed: lease.unconfirmed.filter((each) => each.renewal !== renewal) };
}

/** The row was read, or written by this pod: it is at `rev`, with this entry of the pod. */
export function leaseAfterRead(lease: Lease, rev: number, entry: ShareEntry | undefined): Lease {
  const unconfirmed = lease.unconfirmed.filter((each) => each.rev >= rev);
  if (entry === undefined) return { confirmed: undefined, unconfirmed };
  const { share, renewal } = entry;
  const sent = lease.unconfirmed.find((each) => each.renewal === renewal);
  if (sent) return { confirmed: { share, renewal, sentMs: sent.sentMs }, unconfirmed };
  if (lease.confirmed?.renewal === renewal) return { confirmed: lease.confirmed, unconfirmed };
  // This process didn't send that renewal, so it can't tell when its lease began.
  return { confirmed: { share, renewal, sentMs: -Infinity }, unconfirmed };
}

type GrantedShare = {
  readonly limit: number;
  /** No permit may be granted from this time on, unless the lease is renewed. */
  readonly untilMs: number;
};

/** How many permits the pod may grant, and until when. */
export function grantedShare({ confirmed, unconfirmed }: Lease, leaseMs: number): GrantedShare {
  if (confirmed === undefined) return { limit: 0, untilMs: -Infinity };
  const limit = unconfirmed.reduce((least, { share }) => Math.min(least, share), confirmed.share);
  return { limit, untilMs: confirmed.sentMs + leaseMs };
}

/**
 * What a pod has observed of the other pods, by its own monotonic clock. Pure.
 *
 * A share has expired when its renewal stayed the same for the lease plus the longest call of its
 * holder. The time counts from after the read that first returned the renewal, until before the last
 * read that returned it. The holder counts its lease from before it sent the renewal, so it has stopped
 * by then, whatever the wall clocks say. After a gap between reads the count restarts: the store may
 * have been down, and then no holder could renew.
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
  /** Before the statement was sent, and after its answer came. */
  readonly sentMs: number;
  readonly answeredMs: number;
};

// A pod that waits for other pods' shares reads every second.
const gapMs = 10_000;

export function observeMarks<Mark>(
  before: ObservedMarks<Mark>,
  marks: ReadonlyMap<string, Mark>,
  { sentMs, answeredMs }: RoundTrip,
  longestGapMs = gapMs,
): ObservedMarks<Mark> {
  const gap = before.lastReadMs === undefined || sentMs - before.lastReadMs > longestGapMs;
  const seen = new Map<string, ObservedMark<Mark>>();
  for (const [podId, mark] of marks) {
    const known = before.seen.get(podId);
    const same = known !== undefined && known.mark === mark && !gap;
    seen.set(
      podId,
      same ? { ...known, forMs: sentMs - known.sinceMs } : { mark, sinceMs: answeredMs, forMs: 0 },
    );
  }
  return { lastReadMs: answeredMs, seen };
}

// Allows for clocks that run at different speeds, by far more than real ones do.
const drift = 1.02;

export function hasExpired(
  { leaseMs, longestMs }: Pick<ShareEntry, "leaseMs" | "longestMs">,
  seen: ObservedMark<number> | undefined,
): boolean {
  return seen !== undefined && seen.forMs >= (leaseMs + longestMs) * drift;
}
