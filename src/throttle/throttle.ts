import { type Declared, checkKey, declare, type ThrottleOptions } from "./declare.ts";
import type { AcquireOptions } from "./limiter-line.ts";
import type { Limiter } from "./limiter.ts";
import type { LimiterSnapshot } from "./limiter-snapshot.ts";
import type { Call, Permit } from "./permit.ts";
import { acquireHere, runHere } from "./throttle-run.ts";
import { sceneHere } from "./throttles-here.ts";

export type CallOptions = AcquireOptions & {
  /** Which of the throttle's limits it counts against. */
  readonly key?: string;
};

/** What a downstream can take, learned. It is only a declaration: each pod has its own permits of it. */
export type Throttle = {
  readonly name: string;
  /** The same throttle with a limit of its own for this key, such as a model or an account. */
  key(key: string): Throttle;
  /** Calls the function when there is a permit, and gives it back however that ends. */
  run<Result>(
    fn: (call: Call) => Result | PromiseLike<Result>,
    options?: CallOptions,
  ): Promise<Result>;
  /** Waits for a permit, which must be given back by `release`. */
  acquire(options?: CallOptions): Promise<Permit>;
  /** What it looks like on this pod. */
  snapshot(): LimiterSnapshot;
};

/** Declares a throttle. Every pod, and a process without pods, has permits of its own for it. */
export function throttle(name: string, options?: ThrottleOptions): Throttle {
  return keyed(declare(name, options), "");
}

export function declaredOf(declared: Throttle): Declared {
  return declarations.get(declared)!;
}

const declarations = new WeakMap<Throttle, Declared>();

function keyed(declared: Declared, ownKey: string): Throttle {
  const limiterOf = (key = ownKey): Limiter => sceneHere().throttles.of(declared, key);
  const made: Throttle = {
    name: declared.name,
    key: (key) => keyed(declared, checkKey(declared.name, key)),
    run: (fn, options = {}) => runHere(declared, options.key ?? ownKey, fn, options),
    acquire: (options = {}) => acquireHere(declared, options.key ?? ownKey, options),
    snapshot: () => limiterOf().snapshot(),
  };
  declarations.set(made, declared);
  return made;
}
