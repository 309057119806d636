import type { Clock } from "../../base/clock.ts";
import type { Capacity } from "./capacity.ts";
import { nextShare, type Pressure, type PressureLimits, type Strain } from "./pressure.ts";

export type Elastic = {
  /** How much this pod takes on right now. */
  readonly capacity: Capacity;
  /** What lowers it; undefined while nothing does. */
  readonly strain: Strain | undefined;
  stop(): void;
};

export type ElasticParts = {
  capacity: Capacity;
  clock: Clock;
  /** Looks at the process; without it the capacity is what it is. */
  pressure?: { read: () => Pressure; limits: PressureLimits } | undefined;
  /** Told when there is more or less room than before. */
  onChange: () => void;
};

const lookMs = 1_000;

/** A pod's capacity, looked at anew every second where pressure counts. */
export function createElastic({ capacity, clock, pressure, onChange }: ElasticParts): Elastic {
  if (pressure === undefined) return { capacity, strain: undefined, stop: () => {} };
  let share = 1;
  let strain: Strain | undefined;
  let now = capacity;
  let cancel = () => {};
  const look = () => {
    cancel = clock.after(lookMs, look);
    const seen = pressure.read();
    const { limits } = pressure;
    const isAbove = seen.lateMs > limits.eventLoopMs || seen.memory > limits.memory;
    const next = nextShare(share, seen, limits);
    if (isAbove) strain = { seen, over: false };
    else if (strain) strain = next < 1 ? { ...strain, over: true } : undefined;
    if (next === share) return;
    share = next;
    now = { ...capacity, target: capacity.target * share };
    onChange();
  };
  cancel = clock.after(lookMs, look);
  return {
    get capacity() {
      return now;
    },
    get strain() {
      return strain;
    },
    stop: () => cancel(),
  };
}
