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

type Granted = {
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

/**
 * What a pod has seen of the others, by its own monotonic clock. Pure.
 *
 * A share has expired when its renewal was the same for the lease and the longest call of whoever holds
 * it: counted from after the answer in which it was first seen, until before the question that saw it
 * last. The holder counts its lease from before it sent the renewal, so it has stopped before that,
 * whatever the clocks on the walls say. After a gap the count begins anew: then it may have been the
 * store that was away, and nobody could renew.
 */
type Seen<Mark> = {
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
