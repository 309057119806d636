/**
 * After this many deaths of pods under it, a piece of work is failed: a task, a transition of a run, a
 * turn. Work that ends its process, by a crash or by blocking it until it is ended, would take one pod
 * after the other with it.
 */
export const deathLimit = 4;

/** After this many, a task runs only on a pod that has no other, and a turn begins with no other beside it. */
export const aloneAfterDeaths = 2;
