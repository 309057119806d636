import process from "node:process";

/**
 * Resolves after all pending microtasks. So the notifications of a commit and the answers to its
 * requesters, some promises later, are sent together.
 */
export function afterMicrotasks(): Promise<void> {
  return Promise.resolve().then(() => new Promise((resolve) => process.nextTick(resolve)));
}
