import { checkChoice, checkNumber, checkOptions, type NumberRange } from "../base/options.ts";
import { isResponse } from "./classify.ts";
import type { Declared } from "./declaration.ts";
import { type AcquireOptions, priorities } from "./limiter/wait-queue.ts";
import type { Limiter } from "./limiter/limiter.ts";
import type { Call, HeldPermit } from "./limiter/permit.ts";
import {
  endTurn,
  type Held,
  heldHere,
  type Scene,
  sceneHere,
  scenes,
  takeHanded,
  turnUnder,
} from "./scope.ts";

type Fn<Result> = (call: Call) => Result | PromiseLike<Result>;

/**
 * What becomes of the permit when the function has given its result. By itself it is given back;
 * an answer that is still coming in holds on to it.
 */
type Settle<Result> = (result: Result, permit: HeldPermit, limiter: Limiter) => Result;

/** The same for a call that was made under a permit of code around it: says when it has ended. */
type SettleUnder<Result> = (result: Result, ended: () => void) => Result;

/** Runs a function under a permit of whatever pod this code belongs to. */
export function runHere<Result>(
  declared: Declared,
  key: string,
  fn: Fn<Result>,
  options: AcquireOptions,
  settle: Settle<Result> = giveBack,
  settleUnder: SettleUnder<Result> = endAtOnce,
): Promise<Result> {
  const scene = sceneHere();
  const limiter = limiterFor(scene, declared, key, options);
  if (limiter instanceof Error) return Promise.reject(limiter);
  const asked = withPriority(scene, options);
  const outer = heldHere(scene, limiter);
  if (outer) return runUnder(outer, scene, fn, asked, { settle, settleUnder });
  const permit =
    handedHere(scene, limiter, options.signal) ??
    (options.signal?.aborted ? undefined : limiter.tryAcquire(asked));
  if (permit) return perform(limiter, scene, permit, fn, settle);
  return limiter.acquire(asked).then((given) => perform(limiter, scene, given, fn, settle));
}

/** A permit for code that gives it back by itself. */
export function acquireHere(
  declared: Declared,
  key: string,
  options: AcquireOptions,
): Promise<HeldPermit> {
  const scene = sceneHere();
  const limiter = limiterFor(scene, declared, key, options);
  if (limiter instanceof Error) return Promise.reject(limiter);
  const handed = handedHere(scene, limiter, options.signal);
  return handed ? Promise.resolve(handed) : limiter.acquire(withPriority(scene, options));
}

/** The permit that this code's task was claimed with, for its first call. */
function handedHere(
  scene: Scene,
  limiter: Limiter,
  signal: AbortSignal | undefined,
): HeldPermit | undefined {
  // Whoever has given up makes no call, and leaves it to the next.
  if (signal?.aborted) return undefined;
  const handed = takeHanded(scene, limiter);
  return handed && limiter.begin(handed, signal);
}

function perform<Result>(
  limiter: Limiter,
  scene: Scene,
  permit: HeldPermit,
  fn: Fn<Result>,
  settle: Settle<Result>,
): Promise<Result> {
  return new Promise((resolve, reject) => {
    permit.onTakenBack = reject;
    const held: Held = { limiter, permit, outer: scene.held, turns: undefined };
    const inside: Scene = { ...scene, held };
    const failed = (error: unknown) => {
      permit.release(limiter.endingOf(permit, error));
      reject(permit.timedOut ? permit.timeoutError(error) : error);
    };
    const succeeded = (result: Result) => {
      // It would hold on to the result for as long as the permit is out.
      permit.onTakenBack = undefined;
      try {
        resolve(settle(result, permit, limiter));
      } catch (error) {
        failed(error);
      }
    };
    try {
      const result = scenes.run(inside, fn, permit);
      if (isPromise(result)) result.then(succeeded, failed);
      else succeeded(result);
    } catch (error) {
      failed(error);
    }
  });
}

function giveBack<Result>(result: Result, permit: HeldPermit, limiter: Limiter): Result {
  permit.release(isResponse(result) ? limiter.endingOf(permit, result) : permit.success());
  return result;
}

/**
 * A call inside of a call to the same downstream, such as a `fetch` made by an SDK, is that call, and
 * passes under its permit. Of several at once only one can; the others need permits of their own, or
 * take turns.
 */
async function runUnder<Result>(
  outer: Held,
  scene: Scene,
  fn: Fn<Result>,
  asked: AcquireOptions,
  { settle, settleUnder }: { settle: Settle<Result>; settleUnder: SettleUnder<Result> },
): Promise<Result> {
  const { limiter, permit } = outer;
  if (outer.turns) {
    const own = limiter.tryAcquire(asked);
    if (own) return perform(limiter, scene, own, fn, settle);
  }
  await turnUnder(outer, asked.signal);
  if (permit.over) {
    // It was given back while this one waited for its turn.
    endTurn(outer);
    return limiter.acquire(asked).then((own) => perform(limiter, scene, own, fn, settle));
  }
  const leave = permit.enter();
  const beganMs = limiter.nowMs();
  const inside: Scene = { ...scene, held: { limiter, permit, outer, turns: undefined } };
  try {
    const result = await scenes.run(inside, fn, callUnder(permit, asked.signal));
    const ending = isResponse(result) ? limiter.endingOf(permit, result) : permit.success();
    limiter.tellUnder(permit, ending, limiter.nowMs() - beganMs);
    return settleUnder(result, leave);
  } catch (error) {
    limiter.tellUnder(permit, limiter.endingOf(permit, error), limiter.nowMs() - beganMs);
    leave();
    throw error;
  } finally {
    endTurn(outer);
  }
}

function endAtOnce<Result>(result: Result, ended: () => void): Result {
  ended();
  return result;
}

function callUnder(permit: HeldPermit, signal: AbortSignal | undefined): Call {
  if (!signal) return permit;
  return {
    signal: AbortSignal.any([permit.signal, signal]),
    used: (amount) => permit.used(amount),
    firstToken: () => permit.firstToken(),
  };
}

/** Whoever waits for a promise shouldn't have to catch what is thrown beside it. */
function limiterFor(
  scene: Scene,
  declared: Declared,
  key: string,
  options: AcquireOptions,
): Limiter | Error {
  try {
    checkAsked(declared.name, options);
    return scene.throttles.of(declared, key);
  } catch (error) {
    return error as Error;
  }
}

function withPriority(scene: Scene, options: AcquireOptions): AcquireOptions {
  if (options.priority !== undefined || scene.priority === undefined) return options;
  return { ...options, priority: scene.priority };
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

/** Refuses what a call can't ask for; a number that is none would spoil the sums of all others. */
function checkAsked(name: string, asked: AcquireOptions): void {
  for (const option in asked) {
    if (!optionNames.includes(option)) checkOptions(`throttle "${name}"`, asked, optionNames);
  }
  const { priority } = asked;
  if (priority !== undefined && !priorities.includes(priority)) {
    checkChoice(`throttle "${name}": priority`, priority, priorities);
  }
  checkAmount(name, "estimate", asked.estimate, estimateRange);
  checkAmount(name, "timeoutMs", asked.timeoutMs, timeoutRangeMs);
  checkAmount(name, "maxWaitMs", asked.maxWaitMs, waitRangeMs);
}

// Every call comes by here, so texts are made only where something is wrong.
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
