export type Interrupt = {
  /** What the promise gives, or rejects as soon as it is broken. One at a time. */
  race<Value>(promise: PromiseLike<Value>): Promise<Value>;
  /** Rejects whoever waits, and whoever will. The first reason stays. */
  break(reason: unknown): void;
  readonly broken: boolean;
};

/**
 * Lets one wait after another be cut short. Unlike `Promise.race` with one promise for all of them, it
 * keeps nothing of the waits that are over, of which an answer has one for each chunk.
 */
export function createInterrupt(): Interrupt {
  let cut: { readonly reason: unknown } | undefined;
  let rejectNow: ((reason: unknown) => void) | undefined;
  return {
    race(promise) {
      return new Promise((resolve, reject) => {
        // Also where nobody waits for it any more, what it rejects with is somebody's.
        promise.then(resolve, reject);
        if (cut) return reject(cut.reason);
        rejectNow = reject;
      });
    },
    break(reason) {
      if (cut) return;
      cut = { reason };
      rejectNow?.(reason);
    },
    get broken() {
      return cut !== undefined;
    },
  };
}
