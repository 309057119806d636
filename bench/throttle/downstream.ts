import { fraction, type Random } from "../../src/base/random.ts";
import type { OutcomeKind } from "../../src/throttles/learning/sample.ts";
import { createQuota } from "./quota.ts";
import type { VirtualTime } from "./virtual-time.ts";

/**
 * A hard wall answers 429 to every call above its capacity, and quickly. A soft one lets everything in
 * and shares its capacity: answers take as much longer as there are more calls than it can take. From
 * half above its capacity on it also refuses some, the more the further above. A bucket and a window take
 * as many calls per time as the capacity amounts to, and state what remains in the headers of all answers.
 */
export type Wall = "hard" | "soft" | "bucket" | "window";

/** What the downstream is like at the moment; a scenario changes it. */
export type Conditions = {
  /** How many calls at once it truly takes. */
  capacity: number;
  latencyMs: number;
  /** The share of answers that are errors of its own, whatever the load. */
  errorShare: number;
  /** Answers 429 to everything for a moment, for reasons that nobody knows. */
  refusing: boolean;
  /** Half of the calls hang, the others fail at once. */
  out: boolean;
};

export type Ended = {
  readonly kind: OutcomeKind;
  readonly latencyMs: number;
  /** The capacity it took and gave an answer for: milliseconds of one call without company. */
  readonly workMs: number;
  /** What its answer says, where it says more than its status. */
  readonly headers?: Readonly<Record<string, string>>;
};

export type Downstream = {
  /** How many calls it is working on. */
  readonly active: number;
  call(ended: (how: Ended) => void): void;
};

/** Callers give up after this long. */
export const callTimeoutMs = 1_000;
const refusalMs = 25;
const failureMs = 50;
/** The standard deviation of a latency's logarithm. */
const spread = 0.25;
const softRefusalFrom = 1.5;
const softRefusalSlope = 1;
const softRefusalMost = 0.9;

type DownstreamOptions = {
  readonly time: VirtualTime;
  readonly random: Random;
  readonly wall: Wall;
  readonly conditions: Conditions;
};

export function createDownstream(options: DownstreamOptions): Downstream {
  const { time, random, wall, conditions } = options;
  const quota =
    wall === "bucket" || wall === "window" ? createQuota(wall, time, conditions) : undefined;
  let active = 0;

  function answer(delayMs: number, how: Ended, ended: (how: Ended) => void): void {
    time.in(delayMs, () => ended(how));
  }

  function serve(
    slowdown: number,
    ended: (how: Ended) => void,
    headers?: Readonly<Record<string, string>>,
  ): void {
    const workMs = conditions.latencyMs * varied(random);
    const latencyMs = workMs * slowdown;
    const inTime = latencyMs < callTimeoutMs;
    const kind = fraction(random) < conditions.errorShare ? "server_error" : "success";
    const how: Ended = inTime
      ? { kind, latencyMs, workMs, ...(headers && { headers }) }
      : { kind: "timeout", latencyMs: callTimeoutMs, workMs: 0 };
    active++;
    time.in(how.latencyMs, () => {
      active--;
      ended(how);
    });
  }

  function refuse(ended: (how: Ended) => void, headers?: Readonly<Record<string, string>>): void {
    const latencyMs = refusalMs * varied(random);
    const how: Ended = { kind: "throttled", latencyMs, workMs: 0, ...(headers && { headers }) };
    answer(latencyMs, how, ended);
  }

  function fail(ended: (how: Ended) => void): void {
    const hangs = fraction(random) < 0.5;
    const latencyMs = hangs ? callTimeoutMs : failureMs * varied(random);
    answer(latencyMs, { kind: hangs ? "timeout" : "server_error", latencyMs, workMs: 0 }, ended);
  }

  return {
    get active() {
      return active;
    },
    call(ended) {
      const { capacity, out, refusing } = conditions;
      if (out) return fail(ended);
      if (refusing) return refuse(ended);
      if (quota) {
        const { taken, headers } = quota.take();
        return taken ? serve(1, ended, headers) : refuse(ended, headers);
      }
      if (wall === "hard") return active >= capacity ? refuse(ended) : serve(1, ended);
      const load = (active + 1) / capacity;
      const refusals = Math.min(softRefusalMost, (load - softRefusalFrom) * softRefusalSlope);
      if (refusals > 0 && fraction(random) < refusals) return refuse(ended);
      serve(Math.max(1, load), ended);
    },
  };
}

/** A factor around 1, whose logarithm has the normal distribution. */
function varied(random: Random): number {
  const length = Math.sqrt(-2 * Math.log(1 - fraction(random)));
  const normal = length * Math.cos(2 * Math.PI * fraction(random));
  return Math.exp(spread * normal - spread ** 2 / 2);
}
