import { checkChoice, checkNumber, checkOptions, type NumberRange } from "../base/options.ts";
import { currentWork } from "../pods/unhandled-errors.ts";
import { isResponse } from "./classify.ts";
import type { ThrottleDeclaration } from "./declaration.ts";
import type { Limiter } from "./limiter/limiter.ts";
import type { AcquireOptions, ThrottledCall, HeldPermit, PermitWork } from "./limiter/permit.ts";
import {
  unlockPermit,
  type OuterPermit,
  findOuterPermit,
  type ThrottleScope,
  currentScope,
  scopeStorage,
  takeClaimPermit,
  lockPermit,
} from "./scope.ts";
import { priorities } from "./limiter/priority.ts";

type Fn<Result> = (call: ThrottledCall) => Result | PromiseLike<Result>;

/**
 * Decides when the permit is released after the function has returned. The default releases it at once;
 * a streamed answer holds it until the stream ends.
 */
type SettlePermit<Result> = (result: Result, permit: HeldPermit, limiter: Limiter) => Result;

/** The same for a call under an outer permit: calls `ended` when the call has ended. */
type SettleNestedCall<Result> = (result: Result, ended: () => void) => Result;

/** Runs a function under a permit of the current scope's pod. */
export function runUnderPermit<Result>(
  declared: ThrottleDeclaration,
  key: string,
  fn: Fn<Result>,
  options: AcquireOptions,
  settle: SettlePermit<Result> = releaseAtOnce,
  settleUnder: SettleNestedCall<Result> = endAtOnce,
): Promise<Result> {
  const scope = currentScope();
  const limiter = limiterFor(scope, declared, key, options);
  if (limiter instanceof Error) return Promise.reject(limiter);
  const request = withPriority(scope, options);
  const outer = findOuterPermit(scope, limiter);
  if (outer) return runUnderOuter(outer, scope, fn, request, { settle, settleUnder });
  const permit =
    beginClaimPermit(scope, limiter, options.signal) ??
    (options.signal?.aborted ? undefined : limiter.tryAcquire(request));
  if (permit) return callWithPermit(limiter, scope, permit, fn, settle);
  return limiter
    .acquire(request)
    .then((permit) => callWithPermit(limiter, scope, permit, fn, settle));
}

/** A permit for code that releases it itself. */
export function acquirePermit(
  declared: ThrottleDeclaration,
  key: string,
  options: AcquireOptions,
): Promise<HeldPermit> {
  const scope = currentScope();
  const limiter = limiterFor(scope, declared, key, options);
  if (limiter instanceof Error) return Promise.reject(limiter);
  const work = currentWork();
  const claimPermit = beginClaimPermit(scope, limiter, options.signal);
  const acquired = claimPermit
    ? Promise.resolve(claimPermit)
    : limiter.acquire(withPriority(scope, options));
  return work === undefined ? acquired : acquired.then((permit) => heldBy(permit, work));
}

function heldBy(permit: HeldPermit, work: PermitWork): HeldPermit {
  permit.work = work;
  return permit;
}

/** The permit that this code's task was claimed with, for its first call. */
function beginClaimPermit(
  scope: ThrottleScope,
  limiter: Limiter,
  signal: AbortSignal | undefined,
): HeldPermit | undefined {
  // An aborted caller makes no call, and leaves the permit to the next one.
  if (signal?.aborted) return undefined;
  const claimPermit = takeClaimPermit(scope, limiter);
  return claimPermit && limiter.takeOver(claimPermit, signal);
}

function callWithPermit<Result>(
  limiter: Limiter,
  scope: ThrottleScope,
  permit: HeldPermit,
  fn: Fn<Result>,
  settle: SettlePermit<Result>,
): Promise<Result> {
  permit.work ??= currentWork();
  return new Promise((resolve, reject) => {
    permit.onTakenBack = reject;
    const held: OuterPermit = { limiter, permit, outer: scope.held, lockWaiters: undefined };
    const inside: ThrottleScope = { ...scope, held };
    const failed = (error: unknown) => {
      permit.release(limiter.outcomeOf(permit, error));
      reject(permit.timedOut ? permit.timeoutError(error) : error);
    };
    const succeeded = (result: Result) => {
      // The closure would keep the result alive for as long as the permit is held.
      permit.onTakenBack = undefined;
      try {
        resolve(settle(result, permit, limiter));
      } catch (error) {
        failed(error);
      }
    };
    try {
      const result = scopeStorage.run(inside, fn, permit);
      if (isPromise(result)) result.then(succeeded, failed);
      else succeeded(result);
    } catch (error) {
      failed(error);
    }
  });
}

function releaseAtOnce<Result>(result: Result, permit: HeldPermit, limiter: Limiter): Result {
  permit.release(isResponse(result) ? limiter.outcomeOf(permit, result) : permit.success());
  return result;
}

/**
 * A call inside a call to the same downstream, such as a `fetch` made by an SDK, runs under the outer
 * call's permit. Of several at once only one can; the others acquire permits of their own, or take turns.
 */
async function runUnderOuter<Result>(
  outer: OuterPermit,
  scope: ThrottleScope,
  fn: Fn<Result>,
  request: AcquireOptions,
  { settle, settleUnder }: { settle: SettlePermit<Result>; settleUnder: SettleNestedCall<Result> },
): Promise<Result> {
  const { limiter, permit } = outer;
  if (outer.lockWaiters) {
    const own = limiter.tryAcquire(request);
    if (own) return callWithPermit(limiter, scope, own, fn, settle);
  }
  await lockPermit(outer, request.signal);
  if (permit.over) {
    // The outer permit was released while this call waited for its turn.
    unlockPermit(outer);
    return limiter.acquire(request).then((own) => callWithPermit(limiter, scope, own, fn, settle));
  }
  const leave = permit.enter();
  const beganMs = limiter.nowMs();
  const inside: ThrottleScope = {
    ...scope,
    held: { limiter, permit, outer, lockWaiters: undefined },
  };
  try {
    const result = await scopeStorage.run(inside, fn, callUnderOuter(permit, request.signal));
    const outcome = isResponse(result)
      ? limiter.outcomeOf(permit, result, beganMs)
      : permit.success();
    limiter.recordNestedOutcome(permit, outcome, limiter.nowMs() - beganMs);
    return settleUnder(result, leave);
  } catch (error) {
    limiter.recordNestedOutcome(
      permit,
      limiter.outcomeOf(permit, error, beganMs),
      limiter.nowMs() - beganMs,
    );
    leave();
    throw error;
  } finally {
    unlockPermit(outer);
  }
}

function endAtOnce<Result>(result: Result, ended: () => void): Result {
  ended();
  return result;
}

function callUnderOuter(permit: HeldPermit, signal: AbortSignal | undefined): ThrottledCall {
  if (!signal) return permit;
  return {
    signal: AbortSignal.any([permit.signal, signal]),
    used: (amount) => permit.used(amount),
    firstToken: () => permit.firstToken(),
    headers: (headers) => permit.headers(headers),
  };
}

/** Returns the error, so that callers that return a promise reject it and never throw. */
function limiterFor(
  scope: ThrottleScope,
  declared: ThrottleDeclaration,
  key: string,
  options: AcquireOptions,
): Limiter | Error {
  try {
    checkRequest(declared.name, options);
    return scope.throttles.of(declared, key);
  } catch (error) {
    return error as Error;
  }
}

function withPriority(scope: ThrottleScope, options: AcquireOptions): AcquireOptions {
  if (options.priority !== undefined || scope.priority === undefined) return options;
  return { ...options, priority: scope.priority };
}

function isPromise<Result>(value: Result | PromiseLike<Result>): value is PromiseLike<Result> {
  return typeof (value as PromiseLike<Result> | undefined)?.then === "function";
}

const optionNames = [
  "key",
  "signal",
  "priority",
  "estimate",
  "timeoutMs",
  "maxWaitMs",
  "onWaiting",
];
const dayMs = 86_400_000;
const estimateRange = { min: 0, max: 1e9, whole: false };
const timeoutRangeMs = { min: 1, max: dayMs, whole: false };
const waitRangeMs = { min: 0, max: dayMs, whole: false };

/** Checks a call's options. A NaN would spoil the sums of all other calls. */
function checkRequest(name: string, request: AcquireOptions): void {
  for (const option in request) {
    if (!optionNames.includes(option)) checkOptions(`throttle "${name}"`, request, optionNames);
  }
  const { priority } = request;
  if (priority !== undefined && !priorities.includes(priority)) {
    checkChoice(`throttle "${name}": priority`, priority, priorities);
  }
  checkAmount(name, "estimate", request.estimate, estimateRange);
  checkAmount(name, "timeoutMs", request.timeoutMs, timeoutRangeMs);
  checkAmount(name, "maxWaitMs", request.maxWaitMs, waitRangeMs);
}

// Runs for every call, so the label is only built for an error.
function checkAmount(
  name: string,
  option: string,
  value: number | undefined,
  range: NumberRange,
): void {
  if (value === undefined) return;
  if (typeof value === "number" && value >= range.min && value <= range.max) return;
  checkNumber(`throttle "${name}": ${option}`, value, range);
}
