import type { Random } from "../../src/base/random.ts";
import type { Ended } from "./downstream.ts";
import type { VirtualTime } from "./virtual-time.ts";

/** What a contender is given: time, chance, and a downstream to call. */
export type Surroundings = {
  readonly time: VirtualTime;
  readonly random: Random;
  /** The true capacity of the moment, for those who are allowed to know it. */
  readonly capacity: () => number;
  call(podId: string, ended: (how: Ended) => void): void;
};

/** All pods of one contender. Every pod wants `demand` calls in flight at all times. */
export type Fleet = {
  join(podId: string, demand: number): void;
  /** In order: calls in flight end and count, new ones don't begin. */
  leave(podId: string): void;
  /** From now on nobody there hears of anything. */
  die(podId: string): void;
  /** How many calls the fleet believes it may have in flight, all pods together. */
  limit(): number;
  /** What all pods together promise not to exceed, where there is such a promise. */
  bound?(): number;
};

export type Contender = {
  readonly name: string;
  readonly about: string;
  /** Whether what it does goes on in promises, so that time has to wait for it. */
  readonly settles: boolean;
  open(surroundings: Surroundings): Fleet | Promise<Fleet>;
};
