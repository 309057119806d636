import type { Clock } from "../../base/clock.ts";
import type { Row } from "../../store/database.ts";
import type { SharedNameLimit } from "../sql/claim.ts";
import type { TaskHandler } from "../model.ts";

/**
 * How many tasks a pod holds. A pod with 100 slots and a target of 0.8 holds at most 80 tasks,
 * which leaves room for its other work.
 */
export type Capacity = {
  /** How many tasks this pod could run at once. */
  readonly slots: number;
  /** The share of the slots to use. */
  readonly target: number;
};

export type AdaptiveCapacity = {
  /** The capacity right now. */
  readonly capacity: Capacity;
  /** What lowers the capacity; undefined while nothing does. */
  readonly overload: Overload | undefined;
  stop(): void;
};

export type AdaptiveCapacityParts = {
  capacity: Capacity;
  clock: Clock;
  /** Reads the process's pressure. Without it the capacity is constant. */
  pressure?: { read: () => Pressure; limits: PressureLimits } | undefined;
  /** Called when the capacity has changed. */
  onChange: () => void;
};

/** The event-loop lag and memory use of a pod's process. */
export type Pressure = {
  /** Mean event-loop lag of the last second, weighted by time: one long block counts most. */
  readonly lateMs: number;
  /** The used share of the memory that the process may have, 0 to 1. */
  readonly memory: number;
};

/** The pressure above which a pod lowers its capacity. */
export type PressureLimits = {
  /** The highest event-loop lag. Default 200. */
  readonly eventLoopMs: number;
  /** The highest share of used memory. Default 0.9. */
  readonly memory: number;
};

/** The last pressure above a limit, and whether it has passed. */
export type Overload = { readonly pressure: Pressure; readonly hasPassed: boolean };

export type NameSlots = {
  /** True if any name has slots of its own. If none has, nothing is counted. */
  readonly any: boolean;
  /** How many more tasks of each such name may be claimed. */
  readonly free: ReadonlyMap<string, number> | undefined;
  /** Names that use all their slots. */
  readonly full: readonly string[];
  acquire(name: string): void;
  /** Compares what a claim brought with what it requested. Returns true if more tasks may fit. */
  settleClaim(
    requested: ReadonlyMap<string, number>,
    claims: readonly { readonly name: string }[],
  ): boolean;
  /** Returns true if more tasks of this name may be ready and now have a free slot. */
  release(name: string): boolean;
};

// A claim is one transaction; with more rows it would block other pods for too long.
const maxClaimed = 500;
const pressurePollMs = 1_000;

// The capacity grows again only well below the limit. Otherwise it would oscillate around it.
const calmLoopRatio = 0.5;
const calmMemoryMargin = 0.05;
// Each reading halves the share at most and raises it by a twentieth, because too many tasks are
// worse than too few.
const maxDecrease = 0.5;
const increaseStep = 0.05;
const minShare = 0.01;

export function capacityOf({ slots, target }: Capacity): number {
  return Math.max(1, Math.floor(slots * target));
}

export function freeSlots(capacity: Capacity, held: number): number {
  return Math.max(0, capacityOf(capacity) - held);
}

/**
 * How many tasks to claim in one call: at most half of the capacity, so that the next claim is in
 * flight while these run.
 */
export function claimLimit(capacity: Capacity, held: number): number {
  const half = Math.ceil(capacityOf(capacity) / 2);
  return Math.min(freeSlots(capacity, held), half, maxClaimed);
}

/** A pod's capacity. With `pressure` it is adapted once a second. */
export function createAdaptiveCapacity({
  capacity,
  clock,
  pressure,
  onChange,
}: AdaptiveCapacityParts): AdaptiveCapacity {
  if (pressure === undefined) return { capacity, overload: undefined, stop: () => {} };
  let share = 1;
  let overload: Overload | undefined;
  let current = capacity;
  let cancel = () => {};
  const poll = () => {
    cancel = clock.after(pressurePollMs, poll);
    const pressureNow = pressure.read();
    const { limits } = pressure;
    const isAbove = pressureNow.lateMs > limits.eventLoopMs || pressureNow.memory > limits.memory;
    const next = nextShare(share, pressureNow, limits);
    if (isAbove) overload = { pressure: pressureNow, hasPassed: false };
    else if (overload) overload = next < 1 ? { ...overload, hasPassed: true } : undefined;
    if (next === share) return;
    share = next;
    current = { ...capacity, target: capacity.target * share };
    onChange();
  };
  cancel = clock.after(pressurePollMs, poll);
  return {
    get capacity() {
      return current;
    },
    get overload() {
      return overload;
    },
    stop: () => cancel(),
  };
}

/**
 * Pure. Returns the next share of the usual target. The share falls while a value is above its
 * limit, faster the further above; it grows once all values are well below.
 */
export function nextShare(share: number, pressure: Pressure, limits: PressureLimits): number {
  const load = Math.max(
    pressure.lateMs / limits.eventLoopMs,
    // For memory, the load is the used part of the headroom above the limit.
    1 + (pressure.memory - limits.memory) / (1 - limits.memory),
  );
  if (load > 1) return Math.max(minShare, share * Math.max(maxDecrease, 1 / load));
  const calm =
    pressure.lateMs <= limits.eventLoopMs * calmLoopRatio &&
    pressure.memory <= limits.memory - calmMemoryMargin;
  return calm ? Math.min(1, share + increaseStep) : share;
}

const noNameSlots: NameSlots = {
  any: false,
  free: undefined,
  full: [],
  acquire: () => {},
  settleClaim: () => false,
  release: () => false,
};

/** Counts running tasks of names that have slots of their own on each pod. */
export function createNameSlots(handlers: ReadonlyMap<string, TaskHandler>): NameSlots {
  const free = new Map<string, number>();
  for (const [name, { options }] of handlers) {
    if (options.slots !== undefined) free.set(name, options.slots);
  }
  if (free.size === 0) return noNameSlots;
  /** Names of which the last claim brought all that it requested, so more are probably ready. */
  const namesWithMore = new Set<string>();
  const adjust = (name: string, by: number) => {
    const before = free.get(name);
    if (before !== undefined) free.set(name, before + by);
  };
  return {
    any: true,
    free,
    get full() {
      return [...free].filter(([, left]) => left <= 0).map(([name]) => name);
    },
    acquire: (name) => adjust(name, -1),
    settleClaim(requested, claims) {
      for (const [name, most] of requested) {
        const claimed = claims.filter((claim) => claim.name === name).length;
        if (claimed >= most) namesWithMore.add(name);
        else namesWithMore.delete(name);
      }
      // Attempts may have ended while the claim was in flight.
      return [...namesWithMore].some((name) => free.get(name)! > 0);
    },
    release(name) {
      adjust(name, 1);
      return namesWithMore.has(name);
    },
  };
}

/** The limit of a claim, given the pod's free slots and the number of names it handles. */
export function limitByNameSlots(limit: number, { free }: NameSlots, names: number): number {
  if (free === undefined || free.size < names) return limit;
  let left = 0;
  for (const each of free.values()) left += Math.max(0, each);
  return Math.min(limit, left);
}

/** The smaller limit for each name. */
export function minByName(
  one: ReadonlyMap<string, number> | undefined,
  other: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  if (one === undefined) return other;
  const both = new Map(one);
  for (const [name, most] of other) both.set(name, Math.min(most, both.get(name) ?? Infinity));
  return both;
}

/**
 * The first rows of each name, within the limits by name and the limits shared by several names.
 */
export function limitRowsByName<Each extends Row>(
  rows: readonly Each[],
  maxByName: ReadonlyMap<string, number> | undefined,
  sharedLimits: readonly SharedNameLimit[] = [],
): readonly Each[] {
  if (maxByName === undefined) return rows;
  const left = new Map(maxByName);
  const sets = sharedLimits.map((set) => ({ ...set, left: set.max }));
  return rows.filter((row) => {
    const name = row["name"] as string;
    const set = sets.find(({ names }) => names.includes(name));
    const free = left.get(name) ?? Infinity;
    if (free <= 0 || (set && set.left <= 0)) return false;
    left.set(name, free - 1);
    if (set) set.left--;
    return true;
  });
}
