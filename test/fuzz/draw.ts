import { between, fraction, type Random } from "../../src/base/random.ts";

/** Values that exist in the store, by the name of the field or parameter that takes them. */
export type Known = Readonly<Record<string, readonly string[]>>;

/** Choices of one request. The same random numbers make the same choices. */
export type Draw = {
  readonly known: Known;
  chance(share: number): boolean;
  between(low: number, high: number): number;
  pick<Item>(items: readonly Item[]): Item;
};

export function drawOf(random: Random, known: Known): Draw {
  return {
    known,
    chance: (share) => fraction(random) < share,
    between: (low, high) => between(random, low, high),
    pick: (items) => items[between(random, 0, items.length - 1)]!,
  };
}

/** The seed of one request of many: neighbours share nothing. */
export function seedOf(seed: number, number: number): number {
  const mixed = Math.imul(seed ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(number + 1, 0xc2b2ae35);
  return (mixed ^ (mixed >>> 15)) >>> 0;
}
