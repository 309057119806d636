/**
 * After this many deaths of pods under it, a piece of work fails: a task, a transition of a run, a
 * turn. Work that ends its process, by a crash or by blocking it, would otherwise take down one pod
 * after the other.
 */
export const deathLimit = 4;

/**
 * After this many, a task runs only on a pod without other tasks, and a turn starts only without
 * another suspect beside it.
 */
export const aloneAfterDeaths = 2;
