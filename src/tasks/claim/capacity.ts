/**
 * How much a pod takes on. A pod with 100 slots and a target of 0.8 holds 80 tasks at most, so that
 * there is always room for what it must do besides.
 */
export type Capacity = {
  /** How many tasks this pod could run at once. */
  readonly slots: number;
  /** The share of them that is used. */
  readonly target: number;
};

export function capacityOf({ slots, target }: Capacity): number {
  return Math.max(1, Math.floor(slots * target));
}

export function freeSlots(capacity: Capacity, held: number): number {
  return Math.max(0, capacityOf(capacity) - held);
}

/**
 * How many to ask for in one call: at most half of what fits, so that the next claim is under way
 * while these run.
 */
export function claimLimit(capacity: Capacity, held: number): number {
  const half = Math.ceil(capacityOf(capacity) / 2);
  return Math.min(freeSlots(capacity, held), half, claimMost);
}

// A claim is one transaction; more rows than this would make everybody else wait.
const claimMost = 500;
