import { AsyncLocalStorage } from "node:async_hooks";
import { afterUnref, systemClock } from "../base/clock.ts";
import type { UsageLedger } from "../base/usage.ts";
import { systemRandom } from "../base/random.ts";
import type { Limiter } from "./limiter/limiter.ts";
import type { HeldPermit } from "./limiter/permit.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "./registry.ts";
import type { Priority } from "./limiter/priority.ts";

/** A permit that enclosing code holds. A linked list, the innermost first. */
export type OuterPermit = {
  readonly limiter: Limiter;
  readonly permit: HeldPermit;
  outer: OuterPermit | undefined;
  /** Calls that wait to run under the permit. Defined while a call runs under it. */
  lockWaiters: (() => void)[] | undefined;
};

/** A permit that code was begun with, for its first call. */
type GivenPermit = {
  readonly limiter: Limiter;
  readonly permit: HeldPermit;
  /** Called when a call takes it over. */
  readonly onTaken?: () => void;
};

type ClaimPermit = GivenPermit & { taken: boolean };

/** Whose permits calls use in this async context, and which of them are held already. */
export type ThrottleScope = {
  readonly throttles: ThrottleRegistry;
  /** The priority of calls that set none. */
  readonly priority: Priority | undefined;
  readonly held: OuterPermit | undefined;
  readonly claimPermits: readonly ClaimPermit[];
  /** Where the tokens of calls to models are counted, if anywhere. */
  readonly usage?: UsageLedger | undefined;
};

export const scopeStorage = new AsyncLocalStorage<ThrottleScope>();

/** The permit of this limiter under which the current code runs already. */
export function findOuterPermit(scope: ThrottleScope, limiter: Limiter): OuterPermit | undefined {
  for (let held = scope.held; held; held = held.outer) {
    // Unlink released permits, or a chain of calls that each begin inside the last would grow for ever.
    while (held.outer?.permit.over) held.outer = held.outer.outer;
    if (held.limiter === limiter && !held.permit.over) return held;
  }
  return undefined;
}

/** Waits until no other call on the same level runs under this permit. */
export function lockPermit(held: OuterPermit, signal: AbortSignal | undefined): Promise<void> {
  if (!held.lockWaiters) {
    held.lockWaiters = [];
    return Promise.resolve();
  }
  const { lockWaiters: waiters } = held;
  return new Promise((resolve, reject) => {
    const onLocked = () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    };
    const onAbort = () => {
      waiters.splice(waiters.indexOf(onLocked), 1);
      reject(signal!.reason);
    };
    if (signal?.aborted) return reject(signal.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    waiters.push(onLocked);
  });
}

export function unlockPermit(held: OuterPermit): void {
  const next = held.lockWaiters?.shift();
  if (next) next();
  else held.lockWaiters = undefined;
}

/** The permit that the task was claimed with. Only the first call gets it. */
export function takeClaimPermit(scope: ThrottleScope, limiter: Limiter): HeldPermit | undefined {
  for (const claimPermit of scope.claimPermits) {
    if (claimPermit.limiter !== limiter || claimPermit.taken || claimPermit.permit.released)
      continue;
    claimPermit.taken = true;
    claimPermit.onTaken?.();
    return claimPermit.permit;
  }
  return undefined;
}

/**
 * Releases the permits that this code was begun with and has not used: it goes on behind calls that were
 * made before, and what it does next may be no call. Its next call acquires one.
 */
export function releaseUnused(): void {
  for (const claimPermit of scopeStorage.getStore()?.claimPermits ?? []) {
    if (claimPermit.taken) continue;
    claimPermit.taken = true;
    claimPermit.onTaken?.();
    claimPermit.permit.release("ignored");
  }
}

export type HandlerScope = {
  /** The pod's throttles. */
  readonly throttles: ThrottleRegistry;
  /** The priority of calls that set none. */
  readonly priority?: Priority | undefined;
  /** The permits that the task was claimed with, or the answer was begun with. */
  readonly permits?: readonly GivenPermit[];
  /** Counts the tokens of calls to models. */
  readonly usage?: UsageLedger | undefined;
};

/**
 * Runs a handler, so that its calls use the pod's permits. The first call takes over the permit that the
 * task was claimed with. If the handler makes no call, it counts as the call itself.
 */
export async function runInThrottleScope<Result>(
  { throttles, priority, permits = [], usage }: HandlerScope,
  handler: () => Result | PromiseLike<Result>,
): Promise<Result> {
  const claimPermits: ClaimPermit[] = permits.map((each) => ({ ...each, taken: false }));
  const untaken = () => claimPermits.filter(({ taken }) => !taken);
  try {
    const result = await scopeStorage.run(
      { throttles, priority, held: undefined, claimPermits, usage },
      handler,
    );
    for (const { permit } of untaken()) permit.release(permit.success());
    return result;
  } catch (error) {
    for (const { permit, limiter } of untaken()) {
      permit.release(limiter.outcomeOf(permit, error));
    }
    throw error;
  }
}

/**
 * Calls a model whose tokens the caller counts in the ledger that it gets, if there is one. Calls within it
 * find none, so that a model that is wrapped twice is counted once.
 */
export function countingUsage<Result>(call: (usage: UsageLedger | undefined) => Result): Result {
  const scope = scopeStorage.getStore();
  if (!scope?.usage) return call(undefined);
  const { usage } = scope;
  return scopeStorage.run({ ...scope, usage: undefined }, () => call(usage));
}

// Code outside handlers has no scope. It uses the only pod of the process, or the process's own scope.
const podScopes = new Set<ThrottleScope>();
let onlyPodScope: ThrottleScope | undefined;
let processScope: ThrottleScope | undefined;

/** Lets code outside handlers use a pod's permits, as long as it is the only pod of the process. */
export function shareWithProcess(throttles: ThrottleRegistry): () => void {
  const scope = scopeFor(throttles);
  podScopes.add(scope);
  onlyPodScope = findOnlyPod();
  return () => {
    podScopes.delete(scope);
    onlyPodScope = findOnlyPod();
  };
}

/** Whether code outside handlers uses these throttles. */
export function isProcessDefault(throttles: ThrottleRegistry): boolean {
  return onlyPodScope?.throttles === throttles;
}

function findOnlyPod(): ThrottleScope | undefined {
  return podScopes.size === 1 ? [...podScopes][0] : undefined;
}

/**
 * The scope of the current code: the pod whose handler runs, else the only pod of this process, else the
 * process itself, which then learns alone.
 */
export function currentScope(): ThrottleScope {
  const scope = scopeStorage.getStore();
  if (scope) return scope;
  if (onlyPodScope) return onlyPodScope;
  processScope ??= scopeFor(
    createThrottleRegistry({ clock: systemClock, random: systemRandom, background: afterUnref }),
  );
  return processScope;
}

function scopeFor(throttles: ThrottleRegistry): ThrottleScope {
  return { throttles, priority: undefined, held: undefined, claimPermits: [] };
}
