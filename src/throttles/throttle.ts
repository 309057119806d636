import { FlotillaError } from "../base/errors.ts";
import {
  type ThrottleDeclaration,
  checkKey,
  declareThrottle,
  type ThrottleOptions,
} from "./declaration.ts";
import { type Fetch, type FetchOptions, throttledFetch } from "./fetch.ts";
import {
  type MiddlewareOptions,
  type ThrottleMiddleware,
  throttleMiddleware,
} from "./model-middleware.ts";
import type { LimiterSnapshot } from "./limiter/stats.ts";
import type { AcquireOptions, ThrottledCall, Permit } from "./limiter/permit.ts";
import { acquirePermit, runUnderPermit } from "./run.ts";
import { currentScope } from "./scope.ts";

export type CallOptions = AcquireOptions & {
  /** The key whose limit the call counts against. */
  readonly key?: string;
};

/** A learned limit for calls to a downstream. Only a declaration: each pod has permits of its own. */
export type Throttle = {
  readonly name: string;
  /** The same throttle with a limit of its own for this key, such as a model or an account. */
  key(key: string): Throttle;
  /** Calls the function when there is a permit, and releases the permit however the call ends. */
  run<Result>(
    fn: (call: ThrottledCall) => Result | PromiseLike<Result>,
    options?: CallOptions,
  ): Promise<Result>;
  /** Waits for a permit. The caller must `release` it. */
  acquire(options?: CallOptions): Promise<Permit>;
  /** A `fetch` for any SDK that takes one. It holds its permit until the response's body has ended. */
  readonly fetch: Fetch;
  /** A `fetch` with options. */
  fetchWith(options: FetchOptions): Fetch;
  /** Middleware for models of the AI SDK. */
  middleware(options?: MiddlewareOptions): ThrottleMiddleware;
  /** Its state on this pod. */
  snapshot(): LimiterSnapshot;
};

/** Declares a throttle. Every pod, and a process without pods, has permits of its own for it. */
export function throttle(name: string, options?: ThrottleOptions): Throttle {
  return keyed(declareThrottle(name, options), "");
}

const declarations = new WeakMap<
  Throttle,
  { readonly declared: ThrottleDeclaration; readonly key: string }
>();

/** The declaration and the key of a throttle, for code that manages its permits. */
export function declarationOf(made: Throttle): {
  readonly declared: ThrottleDeclaration;
  readonly key: string;
} {
  const found = declarations.get(made);
  if (found) return found;
  throw new FlotillaError("invalid_option", "a throttle must be made by `throttle(name, options)`");
}

function keyed(declared: ThrottleDeclaration, ownKey: string): Throttle {
  const { name } = declared;
  const throttle: Throttle = {
    name,
    key: (key) => keyed(declared, checkKey(name, key)),
    run: (fn, options = {}) => runUnderPermit(declared, options.key ?? ownKey, fn, options),
    acquire: (options = {}) => acquirePermit(declared, options.key ?? ownKey, options),
    fetch: throttledFetch(declared, ownKey),
    fetchWith: (options) => throttledFetch(declared, ownKey, options),
    middleware: (options) => throttleMiddleware(declared, ownKey, options),
    snapshot: () => currentScope().throttles.of(declared, ownKey).snapshot(),
  };
  declarations.set(throttle, { declared, key: ownKey });
  return throttle;
}
