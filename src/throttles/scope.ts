import { AsyncLocalStorage } from "node:async_hooks";
import { afterUnlessOver, systemClock } from "../base/clock.ts";
import { systemRandom } from "../base/random.ts";
import type { Limiter } from "./limiter/limiter.ts";
import type { HeldPermit } from "./limiter/permit.ts";
import type { Priority } from "./limiter/wait-queue.ts";
import { createThrottles, type Throttles } from "./registry.ts";

/** A permit that code further out holds, and what holds more further out still. */
export type Held = {
  readonly limiter: Limiter;
  readonly permit: HeldPermit;
  outer: Held | undefined;
  /** Those who wait to make a call under it; there while somebody does make one. */
  turns: (() => void)[] | undefined;
};

/** A permit that a task was claimed with, for the first call of its handler. */
type Handed = { readonly limiter: Limiter; readonly permit: HeldPermit; taken: boolean };

/** Whose permits calls use here, and which they may use without asking. */
export type Scene = {
  readonly throttles: Throttles;
  /** Of calls that don't say it themselves. */
  readonly priority: Priority | undefined;
  readonly held: Held | undefined;
  readonly handed: readonly Handed[];
};

export const scenes = new AsyncLocalStorage<Scene>();

/** The permit of that limiter under which this code runs already. */
export function heldHere(scene: Scene, limiter: Limiter): Held | undefined {
  for (let held = scene.held; held; held = held.outer) {
    // Those that are over are let go, or calls that begin one inside of the other would never be.
    while (held.outer?.permit.over) held.outer = held.outer.outer;
    if (held.limiter === limiter && !held.permit.over) return held;
  }
  return undefined;
}

/** Waits until no other call is made under this permit, on the same level. */
export function turnUnder(held: Held, signal: AbortSignal | undefined): Promise<void> {
  if (!held.turns) {
    held.turns = [];
    return Promise.resolve();
  }
  const { turns } = held;
  return new Promise((resolve, reject) => {
    const onTurn = () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    };
    const onAbort = () => {
      turns.splice(turns.indexOf(onTurn), 1);
      reject(signal!.reason);
    };
    if (signal?.aborted) return reject(signal.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    turns.push(onTurn);
  });
}

export function endTurn(held: Held): void {
  const next = held.turns?.shift();
  if (next) next();
  else held.turns = undefined;
}

/** The permit that was handed in for the first call, for whoever asks first. */
export function takeHanded(scene: Scene, limiter: Limiter): HeldPermit | undefined {
  for (const handed of scene.handed) {
    if (handed.limiter !== limiter || handed.taken || handed.permit.released) continue;
    handed.taken = true;
    return handed.permit;
  }
  return undefined;
}

export type HandlerScene = {
  /** The pod's own. */
  readonly throttles: Throttles;
  /** Of its calls, where they don't say it themselves. */
  readonly priority?: Priority | undefined;
  /** What it was claimed with. */
  readonly permits?: readonly { readonly limiter: Limiter; readonly permit: HeldPermit }[];
};

/**
 * Runs a pod's handler, so that its calls use the pod's permits. The first call takes over the permit
 * that its task was claimed with; if it makes none, the handler is the call, and its ending the outcome.
 */
export async function runHandler<Result>(
  { throttles, priority, permits = [] }: HandlerScene,
  handler: () => Result | PromiseLike<Result>,
): Promise<Result> {
  const handed: Handed[] = permits.map((each) => ({ ...each, taken: false }));
  const untaken = () => handed.filter(({ taken }) => !taken);
  try {
    const result = await scenes.run({ throttles, priority, held: undefined, handed }, handler);
    for (const { permit } of untaken()) permit.release(permit.success());
    return result;
  } catch (error) {
    for (const { permit, limiter } of untaken()) {
      permit.release(limiter.endingOf(permit, error));
    }
    throw error;
  }
}

// Outside of handlers nothing says which pod is meant. These are the process's own lists of that.
const podsHere = new Set<Scene>();
let only: Scene | undefined;
let ofProcess: Scene | undefined;

/** Lets code of this process outside of handlers use a pod's permits, as long as it is the only one. */
export function enlist(throttles: Throttles): () => void {
  const scene = sceneOf(throttles);
  podsHere.add(scene);
  only = theOnly();
  return () => {
    podsHere.delete(scene);
    only = theOnly();
  };
}

/** Whether code that isn't told whose permits to use would use these. */
export function areUsedHere(throttles: Throttles): boolean {
  return only?.throttles === throttles;
}

function theOnly(): Scene | undefined {
  return podsHere.size === 1 ? [...podsHere][0] : undefined;
}

/**
 * Whose permits calls use here: those of the pod whose handler this is, else of the only pod of this
 * process, else of the process itself, which then learns alone.
 */
export function sceneHere(): Scene {
  const scene = scenes.getStore();
  if (scene) return scene;
  if (only) return only;
  ofProcess ??= sceneOf(
    createThrottles({ clock: systemClock, random: systemRandom, background: afterUnlessOver }),
  );
  return ofProcess;
}

function sceneOf(throttles: Throttles): Scene {
  return { throttles, priority: undefined, held: undefined, handed: [] };
}
