import { AsyncLocalStorage } from "node:async_hooks";
import type { Limiter } from "./limiter/limiter.ts";
import type { HeldPermit } from "./limiter/permit.ts";
import type { Throttles } from "./registry.ts";
import type { Priority } from "./limiter/wait-queue.ts";

/** A permit that code further out holds, and what holds more further out still. */
export type Held = {
  readonly limiter: Limiter;
  readonly permit: HeldPermit;
  outer: Held | undefined;
  /** Those who wait to make a call under it; there while somebody does make one. */
  turns: (() => void)[] | undefined;
};

/** A permit that a task was claimed with, for the first call of its handler. */
export type Handed = { readonly limiter: Limiter; readonly permit: HeldPermit; taken: boolean };

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
