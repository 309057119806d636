/**
 * Who should hold how many of a throttle's permits. Pure, and the same for everybody who has read the
 * same rows, so that pods that each change only their own share arrive at one division.
 *
 * Demand is met first, evenly: nobody gets more while another, who wants it, has less. What remains is
 * spread as room to grow, so that a pod's next call needn't ask. Permits that can't be divided evenly
 * go round, one place at a time: with fewer permits than pods everybody has one now and then.
 */
type Participant = {
  readonly podId: string;
  /** How many calls it has in flight and would start if it could. */
  readonly demand: number;
};

type Target = {
  /** What it should have of what it asks for. */
  readonly needed: number;
  /** The same with room to grow. */
  readonly target: number;
};

// What goes round costs a permit about half a second at each hand-over, while the one stops, tells and
// the other finds out. At these times that is a small part of the whole.
const placeMs = 2_000;
const placeOfSomeMs = 4_000;
const seatMs = 3_000;

/** `nowMs` is any clock that all pods read alike; it only says whose turn it is. */
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

/** How many more than it asks for a pod should have, if there are enough. */
function headroomFor(demand: number): number {
  return demand > 0 ? Math.max(1, Math.ceil(demand / 2)) : 0;
}

/** Divides a budget of whole permits evenly among wants, none of which gets more than it wants. */
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

/** Which of the places sits first now. All of them have had their turn after a round. */
function firstSeat(seats: number, places: number, level: number, nowMs: number): number {
  if (seats === 0) return 0;
  const leastMs = Math.max(
    places * (level > 0 ? placeOfSomeMs : placeMs),
    (seatMs * places) / seats,
  );
  // A power of two, so that a round of another length seldom begins because one place came or went.
  const roundMs = 2 ** Math.ceil(Math.log2(leastMs));
  return Math.floor(((nowMs % roundMs) / roundMs) * places);
}

function sumOf(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0);
}

/** A pod that holds a share, or wants one. */
export type PodShare = {
  readonly podId: string;
  /** What it holds according to the row. */
  readonly share: number;
  readonly demand: number;
  /** Nothing was heard of it lately, so it takes part in nothing; what it holds, it holds. */
  readonly silent: boolean;
};

export type OwnShare = {
  readonly podId: string;
  readonly share: number;
  readonly inFlight: number;
  readonly demand: number;
  /** It has wanted nothing for a while. */
  readonly idle: boolean;
};

type Situation = {
  readonly bound: number;
  /** The store's time, which only says whose turn it is. */
  readonly nowMs: number;
  readonly me: OwnShare;
  /** All others, without those whose share has expired. */
  readonly others: readonly PodShare[];
};

export type ShareDecision = {
  /** How many calls may be in flight here from now on; never more than what is held. */
  readonly limit: number;
  /** What the row should say of this pod. */
  readonly share: number;
  /** It should have more, and others have to give it up first. */
  readonly owed: boolean;
};

/**
 * What a pod should do about its share. It raises it only by what is free, and lowers it only where
 * somebody else needs it, where the bound has fallen, or when it is idle: what nobody misses stays, so
 * that quiet fleets write nothing. A share is never below what is in flight.
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
    // Where more is in flight than is held, because a share was lost meanwhile, that raises nothing.
    const share = Math.min(me.share, Math.max(target, me.inFlight));
    return { limit: target, share, owed: false };
  }
  const short = me.share < needed || me.share < target - Math.floor(headroomFor(me.demand) / 2);
  const raised = me.share < target && short ? me.share + Math.min(target - me.share, free) : 0;
  const share = Math.max(me.share, raised);
  return { limit: share, share, owed: share < needed };
}

function sharesSum(shares: readonly { readonly share: number }[]): number {
  return shares.reduce((sum, { share }) => sum + share, 0);
}
