/** Callers that wait until a slow client has read most of what was written for it. */
export type Drain = {
  /** Resolves when little waits to be read. */
  drained(): Promise<void>;
  /** Called when something was read, or nothing will be any more. */
  check(): void;
};

export function createDrain(hasDrained: () => boolean): Drain {
  let waiters: (() => void)[] = [];
  return {
    drained: () =>
      hasDrained() ? Promise.resolve() : new Promise((resolve) => waiters.push(resolve)),
    check() {
      if (waiters.length === 0 || !hasDrained()) return;
      const due = waiters;
      waiters = [];
      for (const resolve of due) resolve();
    },
  };
}
