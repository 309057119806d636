import { afterUnlessOver, systemClock } from "../base/clock.ts";
import { systemRandom } from "../base/random.ts";
import { type Scene, scenes } from "./scope.ts";
import { createThrottles, type Throttles } from "./registry.ts";

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
