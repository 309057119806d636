import type { Row } from "../../store/database.ts";
import type { NamesTogether } from "../sql/claim.ts";
import type { TaskHandler } from "../task.ts";

export type NameSlots = {
  /** Whether any name has slots of its own. Where none has, nothing is counted. */
  readonly any: boolean;
  /** How many more of each such name may be claimed. */
  readonly free: ReadonlyMap<string, number> | undefined;
  /** Names of which as many run as may. */
  readonly full: readonly string[];
  took(name: string): void;
  /** Takes what a claim has brought of what it asked for. Gives whether there may be more that fits. */
  answered(
    asked: ReadonlyMap<string, number>,
    claims: readonly { readonly name: string }[],
  ): boolean;
  /** Gives whether others of its name may be waiting, for which there is room now. */
  ended(name: string): boolean;
};

const none: NameSlots = {
  any: false,
  free: undefined,
  full: [],
  took: () => {},
  answered: () => false,
  ended: () => false,
};

/** Counts what runs of names that have slots of their own on each pod. */
export function createNameSlots(handlers: ReadonlyMap<string, TaskHandler>): NameSlots {
  const free = new Map<string, number>();
  for (const [name, { options }] of handlers) {
    if (options.slots !== undefined) free.set(name, options.slots);
  }
  if (free.size === 0) return none;
  /** Names of which the last claim brought all that it asked for, so that there are probably more. */
  const more = new Set<string>();
  const change = (name: string, by: number) => {
    const before = free.get(name);
    if (before !== undefined) free.set(name, before + by);
  };
  return {
    any: true,
    free,
    get full() {
      return [...free].filter(([, left]) => left <= 0).map(([name]) => name);
    },
    took: (name) => change(name, -1),
    answered(asked, claims) {
      for (const [name, most] of asked) {
        const came = claims.filter((claim) => claim.name === name).length;
        if (came >= most) more.add(name);
        else more.delete(name);
      }
      // Some of what runs may have ended while the claim was under way.
      return [...more].some((name) => free.get(name)! > 0);
    },
    ended(name) {
      change(name, 1);
      return more.has(name);
    },
  };
}

/** How many a claim may ask for, given how many the pod has room for and how many names it knows. */
export function limitedTo(limit: number, { free }: NameSlots, names: number): number {
  if (free === undefined || free.size < names) return limit;
  let left = 0;
  for (const each of free.values()) left += Math.max(0, each);
  return Math.min(limit, left);
}

/** What may be claimed of each name where two have a say in it. */
export function fewest(
  one: ReadonlyMap<string, number> | undefined,
  other: ReadonlyMap<string, number>,
): ReadonlyMap<string, number> {
  if (one === undefined) return other;
  const both = new Map(one);
  for (const [name, most] of other) both.set(name, Math.min(most, both.get(name) ?? Infinity));
  return both;
}

/** The first rows of each name, as many as there is room for, also of several names together. */
export function atMost<Each extends Row>(
  rows: readonly Each[],
  most: ReadonlyMap<string, number> | undefined,
  together: readonly NamesTogether[] = [],
): readonly Each[] {
  if (most === undefined) return rows;
  const left = new Map(most);
  const sets = together.map((set) => ({ ...set, left: set.most }));
  return rows.filter((row) => {
    const name = row["name"] as string;
    const set = sets.find(({ names }) => names.includes(name));
    const room = left.get(name) ?? Infinity;
    if (room <= 0 || (set && set.left <= 0)) return false;
    left.set(name, room - 1);
    if (set) set.left--;
    return true;
  });
}
