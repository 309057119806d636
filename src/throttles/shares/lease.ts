/**
 * What a pod may believe about its own share. Pure.
 *
 * A share is held for a lease that is counted from before its renewal was sent, on the pod's own
 * monotonic clock, and only renewals count that are known to be stored. While the answer to one is
 * missing, it may be stored or not, or be yet: the lowest of what may be in the row is what counts. The
 * number that each renewal carries tells on the next look which it was; and a write that was compared
 * with a revision that is over can't land any more.
 */
export type Entry = {
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

export type Sent = {
  /** Zero where the write gives everything back. */
  readonly share: number;
  readonly renewal: number;
  /** The revision that the row must have for it to be stored. */
  readonly rev: number;
  readonly sentMs: number;
};

export type Lease = {
  /** What is known to be stored. */
  readonly known: { share: number; renewal: number; sentMs: number } | undefined;
  /** What was sent and may have been stored, or may still be. */
  readonly doubtful: readonly Sent[];
};

export const noLease: Lease = { known: undefined, doubtful: [] };

export function send(lease: Lease, sent: Sent): Lease {
  return { ...lease, doubtful: [...lease.doubtful, sent] };
}

/** It is known that this write wasn't stored and won't be. */
export function refused(lease: Lease, { renewal }: Sent): Lease {
  return { ...lease, doubtful: lease.doubtful.filter((each) => each.renewal !== renewal) };
}

/** The row was read, or written by this pod: it is at `rev` and says this of the pod. */
export function look(lease: Lease, rev: number, entry: Entry | undefined): Lease {
  const doubtful = lease.doubtful.filter((each) => each.rev >= rev);
  if (entry === undefined) return { known: undefined, doubtful };
  const { share, renewal } = entry;
  const sent = lease.doubtful.find((each) => each.renewal === renewal);
  if (sent) return { known: { share, renewal, sentMs: sent.sentMs }, doubtful };
  if (lease.known?.renewal === renewal) return { known: lease.known, doubtful };
  // Nothing that this pod remembers, so it can't say since when that is good.
  return { known: { share, renewal, sentMs: -Infinity }, doubtful };
}

export type Granted = {
  readonly limit: number;
  /** From this moment on nothing may be granted, unless the lease is renewed. */
  readonly untilMs: number;
};

/** What may be granted on the strength of what is known. */
export function granted({ known, doubtful }: Lease, leaseMs: number): Granted {
  if (known === undefined) return { limit: 0, untilMs: -Infinity };
  const limit = doubtful.reduce((least, { share }) => Math.min(least, share), known.share);
  return { limit, untilMs: known.sentMs + leaseMs };
}
