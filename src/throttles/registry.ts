import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { Random } from "../base/random.ts";
import { checkKey, type ThrottleDeclaration } from "./declaration.ts";
import {
  allowanceOf,
  type ControllerState,
  initialState,
  step,
} from "./learning/limit-controller.ts";
import { createLimiter, type Learner, type Limiter } from "./limiter/limiter.ts";
import type { ControllerSettings } from "./settings.ts";

type ThrottlesOptions = {
  readonly clock: Clock;
  readonly random: Random;
  /** Whether permits are shared with other pods. Otherwise every throttle learns on this pod alone. */
  readonly shared?: boolean;
  /** A timer that doesn't keep the process alive. */
  readonly background?: Clock["after"];
  /** Called with every limiter when it is created. */
  readonly onLimiter?: (limiter: Limiter) => void;
  /** Called with a limiter that was dropped. */
  readonly onDropped?: (limiter: Limiter) => void;
  /** How many limiters there may be at once. */
  readonly maxLimiters?: number;
};

type Group = {
  readonly settings: string;
  /** The same throttle may be declared in several places, with the same settings. */
  readonly declarations: WeakSet<ThrottleDeclaration>;
  readonly byKey: Map<string, Limiter>;
};

// Without a bound, keys that never repeat would use up all memory.
const defaultMaxLimiters = 10_000;

export type ThrottleRegistry = ReturnType<typeof createThrottleRegistry>;

/** The limiters of one pod, one per throttle and key, created on first use. */
export function createThrottleRegistry(options: ThrottlesOptions) {
  const { clock, random, shared = false, maxLimiters = defaultMaxLimiters } = options;
  const byName = new Map<string, Group>();
  const kept = new Set<Limiter>();
  let count = 0;
  let closed = false;

  const all = (): Limiter[] => [...byName.values()].flatMap(({ byKey }) => [...byKey.values()]);

  const drop = (limiter: Limiter): void => {
    if (!byName.get(limiter.name)?.byKey.delete(limiter.key)) return;
    count--;
    limiter.close();
    options.onDropped?.(limiter);
  };

  /** Drops the limiters that have been idle for longest, a tenth of the maximum at once. */
  const dropIdle = (): void => {
    const idle = all()
      .filter((limiter) => limiter.isIdle() && !kept.has(limiter))
      .sort((a, b) => a.lastUsedMs() - b.lastUsedMs());
    for (const limiter of idle.slice(0, Math.ceil(maxLimiters / 10))) drop(limiter);
    if (count < maxLimiters) return;
    throw new FlotillaError(
      "throttle_full",
      `${maxLimiters} throttle keys are in use at once: use keys that repeat, such as a model or an account`,
    );
  };

  const groupOf = (declared: ThrottleDeclaration): Group => {
    const { name } = declared;
    const settings = JSON.stringify(declared.settings);
    const group = byName.get(name) ?? { settings, declarations: new WeakSet(), byKey: new Map() };
    if (group.settings !== settings) {
      throw new FlotillaError(
        "invalid_option",
        `the throttle "${name}" is declared twice with different options: use the same options, or another name`,
      );
    }
    group.declarations.add(declared);
    byName.set(name, group);
    return group;
  };

  const make = (declared: ThrottleDeclaration, key: string): Limiter => {
    const { name, settings } = declared;
    checkKey(name, key);
    const group = groupOf(declared);
    const found = group.byKey.get(key);
    if (found) return found;
    if (closed) throw new FlotillaError("closed", `the pod of the throttle "${name}" has stopped`);
    if (count >= maxLimiters) dropIdle();
    const limiter = createLimiter({
      name,
      key,
      clock,
      random,
      settings: shared ? settings : { ...settings, mode: "local" },
      learner: createLearner(settings.controller),
      classify: declared.classify,
      background: options.background,
    });
    group.byKey.set(key, limiter);
    count++;
    options.onLimiter?.(limiter);
    return limiter;
  };

  return {
    of(declared: ThrottleDeclaration, key = ""): Limiter {
      const group = byName.get(declared.name);
      const found = group?.byKey.get(key);
      // Comparing settings costs more than a call, so it happens once per declaration.
      if (found && group!.declarations.has(declared)) return found;
      return make(declared, key);
    },

    /** Refuses a throttle that is declared elsewhere with other settings, before its first call. */
    declare: (declared: ThrottleDeclaration): void => void groupOf(declared),

    /** Never drops this limiter as idle. The claim loop relies on finding its limiters again. */
    keep: (limiter: Limiter): void => void kept.add(limiter),

    find: (name: string, key = ""): Limiter | undefined => byName.get(name)?.byKey.get(key),

    all,

    /** The limiters of one throttle, of all keys. */
    allOf: (name: string): Limiter[] => [...(byName.get(name)?.byKey.values() ?? [])],

    /** Whether there is any limiter. */
    get any() {
      return count > 0;
    },

    /** Removes a limiter, and what it has learned. */
    drop,

    /** Refuses waiting calls, and grants no more permits. */
    close(): void {
      closed = true;
      for (const limiter of all()) limiter.close();
    },
  };
}

/** Learns on this pod alone, from its own calls. */
export function createLearner(settings: ControllerSettings): Learner {
  let state: ControllerState = initialState(settings);
  return {
    allowance: () => allowanceOf(settings, state),
    learn(elapsedMs, sample) {
      state = step(settings, state, { elapsedMs, sample });
    },
    state: () => state,
  };
}
