import type { Clock } from "../../base/clock.ts";
import type { Row } from "../../store/database.ts";
import type { SharedNameLimit } from "../sql/claim.ts";
import type { TaskHandler } from "../task.ts";

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
  return Math.min(freeSlots(capacity, held), half, maxClaimed);
}

// A claim is one transaction; more rows than this would make everybody else wait.
const maxClaimed = 500;

export type AdaptiveCapacity = {
  /** How much this pod takes on right now. */
  readonly capacity: Capacity;
  /** What lowers it; undefined while nothing does. */
  readonly overload: Overload | undefined;
  stop(): void;
};

export type AdaptiveCapacityParts = {
  capacity: Capacity;
  clock: Clock;
  /** Looks at the process; without it the capacity is what it is. */
  pressure?: { read: () => Pressure; limits: PressureLimits } | undefined;
  /** Told when there is more or less room than before. */
  onChange: () => void;
};

const pressurePollMs = 1_000;

/** A pod's capacity, looked at anew every second where pressure counts. */
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

/** How hard a pod's process has it. */
export type Pressure = {
  /** How late the event loop is, for what happens at any moment of the last second. */
  readonly lateMs: number;
  /** The share of the memory that it may have which is in use, 0 to 1. */
  readonly memory: number;
};

/** Above which a pod takes on less. */
export type PressureLimits = {
  /** How late its event loop may be. Default 200. */
  readonly eventLoopMs: number;
  /** The share of its memory that may be in use. Default 0.9. */
  readonly memory: number;
};

/** What has lowered a pod's capacity, as it was seen last, and whether that is over. */
export type Overload = { readonly pressure: Pressure; readonly hasPassed: boolean };

// It must be well below the limit before more is taken on again, or it would go up and down with it.
const calmLoopRatio = 0.5;
const calmMemoryMargin = 0.05;
// Down by half at the most with every look, and up in twenty: too much is worse than too little.
const maxDecrease = 0.5;
const increaseStep = 0.05;
const minShare = 0.01;

/**
 * Decides; never does. Which share of its usual target a pod goes by, given the share so far: less
 * while something is above its limit, the more so the further above; more once all is well below.
 */
export function nextShare(share: number, pressure: Pressure, limits: PressureLimits): number {
  const load = Math.max(
    pressure.lateMs / limits.eventLoopMs,
    // What counts is how much of the room above the limit is gone.
    1 + (pressure.memory - limits.memory) / (1 - limits.memory),
  );
  if (load > 1) return Math.max(minShare, share * Math.max(maxDecrease, 1 / load));
  const calm =
    pressure.lateMs <= limits.eventLoopMs * calmLoopRatio &&
    pressure.memory <= limits.memory - calmMemoryMargin;
  return calm ? Math.min(1, share + increaseStep) : share;
}

export type NameSlots = {
  /** Whether any name has slots of its own. Where none has, nothing is counted. */
  readonly any: boolean;
  /** How many more of each such name may be claimed. */
  readonly free: ReadonlyMap<string, number> | undefined;
  /** Names of which as many run as may. */
  readonly full: readonly string[];
  acquire(name: string): void;
  /** Takes what a claim has brought of what it asked for. Gives whether there may be more that fits. */
  settleClaim(
    requested: ReadonlyMap<string, number>,
    claims: readonly { readonly name: string }[],
  ): boolean;
  /** Gives whether others of its name may be waiting, for which there is room now. */
  release(name: string): boolean;
};

const noNameSlots: NameSlots = {
  any: false,
  free: undefined,
  full: [],
  acquire: () => {},
  settleClaim: () => false,
  release: () => false,
};

/** Counts what runs of names that have slots of their own on each pod. */
export function createNameSlots(handlers: ReadonlyMap<string, TaskHandler>): NameSlots {
  const free = new Map<string, number>();
  for (const [name, { options }] of handlers) {
    if (options.slots !== undefined) free.set(name, options.slots);
  }
  if (free.size === 0) return noNameSlots;
  /** Names of which the last claim brought all that it asked for, so that there are probably more. */
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
        const came = claims.filter((claim) => claim.name === name).length;
        if (came >= most) namesWithMore.add(name);
        else namesWithMore.delete(name);
      }
      // Some of what runs may have ended while the claim was under way.
      return [...namesWithMore].some((name) => free.get(name)! > 0);
    },
    release(name) {
      adjust(name, 1);
      return namesWithMore.has(name);
    },
  };
}

/** How many a claim may ask for, given how many the pod has room for and how many names it knows. */
export function limitByNameSlots(limit: number, { free }: NameSlots, names: number): number {
  if (free === undefined || free.size < names) return limit;
  let left = 0;
  for (const each of free.values()) left += Math.max(0, each);
  return Math.min(limit, left);
}

/** What may be claimed of each name where two have a say in it. */
export function minByName(
  one: ReadonlyMap<string, number> | undefined,
  other: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  if (one === undefined) return other;
  const both = new Map(one);
  for (const [name, most] of other) both.set(name, Math.min(most, both.get(name) ?? Infinity));
  return both;
}

/** The first rows of each name, as many as there is room for, also of several names together. */
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
