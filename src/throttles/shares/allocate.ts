// Each hand-over of a rotating permit costs about half a second: one pod stops and writes, the other
// reads. Turns of this length keep that a small part of the whole.
const placeMs = 2_000;
const placeOfSomeMs = 4_000;
const seatMs = 3_000;

/** Another pod that holds a share, or has demand. */
export type PodShare = {
  readonly podId: string;
  /** Its share in the row. */
  readonly share: number;
  readonly demand: number;
  /** It hasn't reported lately. It keeps its share, and is allocated nothing else. */
  readonly silent: boolean;
};

export type OwnShare = {
  readonly podId: string;
  readonly share: number;
  readonly inFlight: number;
  readonly demand: number;
  /** It has had no demand for a while. */
  readonly idle: boolean;
};

type Situation = {
  readonly bound: number;
  /** The store's time, which only decides the rotation. */
  readonly nowMs: number;
  readonly me: OwnShare;
  /** All other pods, except those whose share has expired. */
  readonly others: readonly PodShare[];
};

export type ShareDecision = {
  /** How many calls may be in flight on this pod from now on; never more than its share. */
  readonly limit: number;
  /** What this pod should write as its share. */
  readonly share: number;
  /** It should have more, and other pods have to return permits first. */
  readonly owed: boolean;
};

/**
 * Decides a pod's share. The pod raises it only by free permits. It lowers it only where another pod
 * needs them, where the bound has fallen, or when it is idle: otherwise a share stays as it is, so that
 * quiet fleets write nothing. A share is never lowered below the calls in flight.
 */
export function decideShare({ bound, nowMs, me, others }: Situation): ShareDecision {
  const held = sharesSum(others) + me.share;
  const free = bound - held;
  const silent = others.filter((each) => each.silent);
  const active = others.filter((each) => !each.silent);
  const budget = bound - sharesSum(silent);
  const targets = allocate(budget, [me, ...active], nowMs);
  const { target, needed } = targets.get(me.podId)!;

  const missing = active.reduce(
    (sum, { podId, share }) => sum + Math.max(0, targets.get(podId)!.needed - share),
    0,
  );
  if (me.share > target && (me.idle || free < 0 || missing > free)) {
    // More calls than the share may be in flight after a share was lost. That doesn't raise the share.
    const share = Math.min(me.share, Math.max(target, me.inFlight));
    return { limit: target, share, owed: false };
  }
  const short = me.share < needed || me.share < target - Math.floor(headroomFor(me.demand) / 2);
  const raised = me.share < target && short ? me.share + Math.min(target - me.share, free) : 0;
  const share = Math.max(me.share, raised);
  return { limit: share, share, owed: share < needed };
}

type Participant = {
  readonly podId: string;
  /** Calls in flight, and calls and tasks that wait. */
  readonly demand: number;
};

type Target = {
  /** The pod's permits for its demand. */
  readonly needed: number;
  /** The same plus headroom. */
  readonly target: number;
};

/**
 * Divides a budget of permits among pods. Pure, and the same for all pods that have read the same rows,
 * so that pods that each change only their own share arrive at one division.
 *
 * Demand is met first, evenly: no pod gets more while another with unmet demand has less. What remains
 * is spread as headroom, so that a pod's next call needn't wait for the store. Permits that can't be
 * divided evenly rotate, one place at a time: with fewer permits than pods, each pod has one at times.
 *
 * `nowMs` is a clock that all pods share; it only decides the rotation.
 */
export function allocate(
  budget: number,
  participants: readonly Participant[],
  nowMs: number,
): Map<string, Target> {
  const order = participants.toSorted((a, b) => (a.podId < b.podId ? -1 : 1));
  const whole = Math.max(0, Math.floor(budget));
  const needed = fill(
    whole,
    order.map(({ demand }) => demand),
    nowMs,
  );
  const headroom = fill(
    whole - sumOf(needed),
    order.map(({ demand }) => headroomFor(demand)),
    nowMs,
  );
  return new Map(
    order.map(({ podId }, at) => [
      podId,
      { needed: needed[at]!, target: needed[at]! + headroom[at]! },
    ]),
  );
}

/** How many permits beyond its demand a pod should have, if there are enough. */
function headroomFor(demand: number): number {
  return demand > 0 ? Math.max(1, Math.ceil(demand / 2)) : 0;
}

/** Divides whole permits evenly among `wants`, none of which gets more than it wants. */
function fill(budget: number, wants: readonly number[], nowMs: number): number[] {
  const filled = wants.map(() => 0);
  const byWant = wants.map((_, at) => at).toSorted((a, b) => wants[a]! - wants[b]! || a - b);
  let left = budget;
  for (const [done, at] of byWant.entries()) {
    const level = Math.floor(left / (wants.length - done));
    if (wants[at]! > level) {
      const short = byWant.slice(done).toSorted((a, b) => a - b);
      const seats = left - level * short.length;
      const first = firstSeat(seats, short.length, level, nowMs);
      for (const [place, pod] of short.entries()) {
        const seated = (place - first + short.length) % short.length < seats;
        filled[pod] = level + (seated ? 1 : 0);
      }
      return filled;
    }
    filled[at] = wants[at]!;
    left -= wants[at]!;
  }
  return filled;
}

/** Which place is first in the rotation now. After a round all of them have had their turn. */
function firstSeat(seats: number, places: number, level: number, nowMs: number): number {
  if (seats === 0) return 0;
  const leastMs = Math.max(
    places * (level > 0 ? placeOfSomeMs : placeMs),
    (seatMs * places) / seats,
  );
  // A power of two, so that the round's length seldom changes when a pod joins or leaves.
  const roundMs = 2 ** Math.ceil(Math.log2(leastMs));
  return Math.floor(((nowMs % roundMs) / roundMs) * places);
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}

function sharesSum(shares: readonly { readonly share: number }[]): number {
  return shares.reduce((sum, { share }) => sum + share, 0);
}
