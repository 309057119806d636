import { allot, roomFor } from "./allocate.ts";

/** A pod that holds a share, or wants one. */
export type Standing = {
  readonly podId: string;
  /** What it holds according to the row. */
  readonly share: number;
  readonly demand: number;
  /** Nothing was heard of it lately, so it takes part in nothing; what it holds, it holds. */
  readonly silent: boolean;
};

export type Mine = {
  readonly podId: string;
  readonly share: number;
  readonly inFlight: number;
  readonly demand: number;
  /** It has wanted nothing for a while. */
  readonly idle: boolean;
};

export type Situation = {
  readonly bound: number;
  /** The store's time, which only says whose turn it is. */
  readonly nowMs: number;
  readonly me: Mine;
  /** All others, without those whose share has expired. */
  readonly others: readonly Standing[];
};

export type Decision = {
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
export function decide({ bound, nowMs, me, others }: Situation): Decision {
  const held = sharesSum(others) + me.share;
  const free = bound - held;
  const silent = others.filter((each) => each.silent);
  const taking = others.filter((each) => !each.silent);
  const budget = bound - sharesSum(silent);
  const targets = allot(budget, [me, ...taking], nowMs);
  const { target, needed } = targets.get(me.podId)!;

  const missing = taking.reduce(
    (sum, { podId, share }) => sum + Math.max(0, targets.get(podId)!.needed - share),
    0,
  );
  if (me.share > target && (me.idle || free < 0 || missing > free)) {
    // Where more is in flight than is held, because a share was lost meanwhile, that raises nothing.
    const share = Math.min(me.share, Math.max(target, me.inFlight));
    return { limit: target, share, owed: false };
  }
  const short = me.share < needed || me.share < target - Math.floor(roomFor(me.demand) / 2);
  const raised = me.share < target && short ? me.share + Math.min(target - me.share, free) : 0;
  const share = Math.max(me.share, raised);
  return { limit: share, share, owed: share < needed };
}

function sharesSum(standings: readonly { readonly share: number }[]): number {
  return standings.reduce((sum, { share }) => sum + share, 0);
}
