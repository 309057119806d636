import { classify, isResponse } from "./classify.ts";
import {
  endTurn,
  type Held,
  heldHere,
  type Scene,
  scenes,
  takeHanded,
  turnUnder,
} from "./context.ts";
import type { Declared } from "./declare.ts";
import type { AcquireOptions } from "./limiter-line.ts";
import type { Limiter } from "./limiter.ts";
import type { Call, Ending, HeldPermit } from "./permit.ts";
import { sceneHere } from "./throttles-here.ts";

type Fn<Result> = (call: Call) => Result | PromiseLike<Result>;

/** Runs a function under a permit of whatever pod this code belongs to. */
export function runHere<Result>(
  declared: Declared,
  key: string,
  fn: Fn<Result>,
  options: AcquireOptions,
): Promise<Result> {
  const scene = sceneHere();
  const limiter = limiterOf(scene, declared, key);
  const asked = withPriority(scene, options);
  const outer = heldHere(scene, limiter);
  if (outer) return runUnder(outer, declared, scene, fn, asked);
  const handed = takeHanded(scene, limiter);
  if (handed) limiter.begin(handed, options.signal);
  const permit = handed ?? (options.signal?.aborted ? undefined : limiter.tryAcquire(asked));
  if (permit) return perform(declared, limiter, scene, permit, fn);
  return limiter.acquire(asked).then((given) => perform(declared, limiter, scene, given, fn));
}

/** A permit for code that gives it back by itself. */
export function acquireHere(
  declared: Declared,
  key: string,
  options: AcquireOptions,
): Promise<HeldPermit> {
  const scene = sceneHere();
  const limiter = limiterOf(scene, declared, key);
  const handed = takeHanded(scene, limiter);
  if (!handed) return limiter.acquire(withPriority(scene, options));
  limiter.begin(handed, options.signal);
  return Promise.resolve(handed);
}

function perform<Result>(
  declared: Declared,
  limiter: Limiter,
  scene: Scene,
  permit: HeldPermit,
  fn: Fn<Result>,
): Promise<Result> {
  return new Promise((resolve, reject) => {
    permit.onTakenBack = reject;
    const held: Held = { limiter, permit, outer: scene.held, turns: undefined };
    const inside: Scene = { ...scene, held };
    const failed = (error: unknown) => {
      permit.release(endingOf(declared, limiter, permit, error));
      reject(permit.timedOut ? permit.timeoutError(error) : error);
    };
    const succeeded = (result: Result) => {
      permit.release(
        isResponse(result) ? endingOf(declared, limiter, permit, result) : successOf(permit),
      );
      resolve(result);
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

/** How a call ended that threw this or gave this response, whoever may have cut it short. */
export function endingOf(
  declared: Declared,
  limiter: Limiter,
  permit: HeldPermit,
  thing: unknown,
): Ending {
  if (permit.timedOut) return { kind: "timeout" };
  if (permit.givenUp) return { kind: "ignored" };
  return classify(thing, limiter.wallMs(), declared.classify);
}

// An answer that came after its time was up is too late, even though the caller may still use it.
const successOf = (permit: HeldPermit): "timeout" | "success" =>
  permit.timedOut ? "timeout" : "success";

/**
 * A call inside of a call to the same downstream, such as a `fetch` made by an SDK, is that call, and
 * passes under its permit. Of several at once only one can; the others need permits of their own, or
 * take turns.
 */
async function runUnder<Result>(
  outer: Held,
  declared: Declared,
  scene: Scene,
  fn: Fn<Result>,
  asked: AcquireOptions,
): Promise<Result> {
  const { limiter, permit } = outer;
  if (outer.turns) {
    const own = limiter.tryAcquire(asked);
    if (own) return perform(declared, limiter, scene, own, fn);
  }
  await turnUnder(outer, asked.signal);
  const beganMs = limiter.nowMs();
  const inside: Scene = { ...scene, held: { limiter, permit, outer, turns: undefined } };
  try {
    const result = await scenes.run(inside, fn, callUnder(permit, asked.signal));
    const ending = isResponse(result) ? endingOf(declared, limiter, permit, result) : undefined;
    limiter.tellUnder(permit, ending ?? { kind: "success" }, limiter.nowMs() - beganMs);
    return result;
  } catch (error) {
    const ending = endingOf(declared, limiter, permit, error);
    limiter.tellUnder(permit, ending, limiter.nowMs() - beganMs);
    throw error;
  } finally {
    endTurn(outer);
  }
}

function callUnder(permit: HeldPermit, signal: AbortSignal | undefined): Call {
  if (!signal) return permit;
  return {
    signal: AbortSignal.any([permit.signal, signal]),
    used: (amount) => permit.used(amount),
    firstToken: () => permit.firstToken(),
  };
}

function withPriority(scene: Scene, options: AcquireOptions): AcquireOptions {
  if (options.priority !== undefined || scene.priority === undefined) return options;
  return { ...options, priority: scene.priority };
}

function limiterOf(scene: Scene, declared: Declared, key: string): Limiter {
  return scene.throttles.of(declared, key);
}

function isPromise<Result>(value: Result | PromiseLike<Result>): value is PromiseLike<Result> {
  return typeof (value as PromiseLike<Result> | undefined)?.then === "function";
}
