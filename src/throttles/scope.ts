import { AsyncLocalStorage } from "node:async_hooks";
import { afterUnref, systemClock } from "../base/clock.ts";
import { systemRandom } from "../base/random.ts";
import type { Limiter } from "./limiter/limiter.ts";
import type { HeldPermit } from "./limiter/permit.ts";
import type { Priority } from "./limiter/wait-queue.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "./registry.ts";

/** A permit that code further out holds, and what holds more further out still. */
export type OuterPermit = {
  readonly limiter: Limiter;
  readonly permit: HeldPermit;
  outer: OuterPermit | undefined;
  /** Those who wait to make a call under it; there while somebody does make one. */
  lockWaiters: (() => void)[] | undefined;
};

/** A permit that a task was claimed with, for the first call of its handler. */
type ClaimPermit = { readonly limiter: Limiter; readonly permit: HeldPermit; taken: boolean };

/** Whose permits calls use here, and which they may use without asking. */
export type ThrottleScope = {
  readonly throttles: ThrottleRegistry;
  /** Of calls that don't say it themselves. */
  readonly priority: Priority | undefined;
  readonly held: OuterPermit | undefined;
  readonly claimPermits: readonly ClaimPermit[];
};

export const scopeStorage = new AsyncLocalStorage<ThrottleScope>();

/** The permit of that limiter under which this code runs already. */
export function findOuterPermit(scope: ThrottleScope, limiter: Limiter): OuterPermit | undefined {
  for (let held = scope.held; held; held = held.outer) {
    // Those that are over are let go, or calls that begin one inside of the other would never be.
    while (held.outer?.permit.over) held.outer = held.outer.outer;
    if (held.limiter === limiter && !held.permit.over) return held;
  }
  return undefined;
}

/** Waits until no other call is made under this permit, on the same level. */
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

/** The permit that was handed in for the first call, for whoever asks first. */
export function takeClaimPermit(scope: ThrottleScope, limiter: Limiter): HeldPermit | undefined {
  for (const claimPermit of scope.claimPermits) {
    if (claimPermit.limiter !== limiter || claimPermit.taken || claimPermit.permit.released)
      continue;
    claimPermit.taken = true;
    return claimPermit.permit;
  }
  return undefined;
}

export type HandlerScope = {
  /** The pod's own. */
  readonly throttles: ThrottleRegistry;
  /** Of its calls, where they don't say it themselves. */
  readonly priority?: Priority | undefined;
  /** What it was claimed with. */
  readonly permits?: readonly { readonly limiter: Limiter; readonly permit: HeldPermit }[];
};

/**
 * Runs a pod's handler, so that its calls use the pod's permits. The first call takes over the permit
 * that its task was claimed with; if it makes none, the handler is the call, and its ending the outcome.
 */
export async function runInThrottleScope<Result>(
  { throttles, priority, permits = [] }: HandlerScope,
  handler: () => Result | PromiseLike<Result>,
): Promise<Result> {
  const claimPermits: ClaimPermit[] = permits.map((each) => ({ ...each, taken: false }));
  const untaken = () => claimPermits.filter(({ taken }) => !taken);
  try {
    const result = await scopeStorage.run(
      { throttles, priority, held: undefined, claimPermits },
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

// Outside of handlers nothing says which pod is meant. These are the process's own lists of that.
const podScopes = new Set<ThrottleScope>();
let onlyPodScope: ThrottleScope | undefined;
let processScope: ThrottleScope | undefined;

/** Lets code of this process outside of handlers use a pod's permits, as long as it is the only one. */
export function shareWithProcess(throttles: ThrottleRegistry): () => void {
  const scope = scopeFor(throttles);
  podScopes.add(scope);
  onlyPodScope = findOnlyPod();
  return () => {
    podScopes.delete(scope);
    onlyPodScope = findOnlyPod();
  };
}

/** Whether code that isn't told whose permits to use would use these. */
export function isProcessDefault(throttles: ThrottleRegistry): boolean {
  return onlyPodScope?.throttles === throttles;
}

function findOnlyPod(): ThrottleScope | undefined {
  return podScopes.size === 1 ? [...podScopes][0] : undefined;
}

/**
 * Whose permits calls use here: those of the pod whose handler this is, else of the only pod of this
 * process, else of the process itself, which then learns alone.
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
