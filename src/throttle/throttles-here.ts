import { afterUnlessOver, systemClock } from "../base/clock.ts";
import { systemRandom } from "../base/random.ts";
import { type Scene, scenes } from "./context.ts";
import { createThrottles, type Throttles } from "./throttles.ts";

// Outside of handlers nothing says which pod is meant. These are the process's own two lists of that.
const podsHere = new Set<Scene>();
let ofProcess: Scene | undefined;

/** Lets code of this process outside of handlers use a pod's permits, as long as it is the only one. */
export function enlist(throttles: Throttles): () => void {
  const scene = sceneOf(throttles);
  podsHere.add(scene);
  return () => void podsHere.delete(scene);
}

/**
 * Whose permits calls use here: those of the pod whose handler this is, else of the only pod of this
 * process, else of the process itself, which then learns alone.
 */
export function sceneHere(): Scene {
  const scene = scenes.getStore();
  if (scene) return scene;
  if (podsHere.size === 1) for (const only of podsHere) return only;
  ofProcess ??= sceneOf(
    createThrottles({ clock: systemClock, random: systemRandom, background: afterUnlessOver }),
  );
  return ofProcess;
}

function sceneOf(throttles: Throttles): Scene {
  return { throttles, priority: undefined, held: undefined, handed: [] };
}
