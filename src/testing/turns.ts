/**
 * Real time, for the one thing that needs it in a test: handlers that await real things, such as
 * files and timers, and settle after some turns of the event loop.
 */

/** Lets every promise that can settle by itself do so. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Leaves the processor to whatever a handler waits for. */
export function pause(): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, 1));
}

/** Tells whether so much real time has passed. */
export function realLimit(limitMs: number): () => boolean {
  const startedMs = performance.now();
  return () => performance.now() - startedMs > limitMs;
}
