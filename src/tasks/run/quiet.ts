import type { Clock } from "../../base/clock.ts";

/** Waits until a pod has nothing left to do. `check` is called whenever something has ended. */
export function createQuiet(clock: Clock, isQuiet: () => boolean) {
  let onQuiet: (() => void) | undefined;
  const check = () => {
    if (isQuiet()) onQuiet?.();
  };
  return {
    check,
    /** Resolves when all is quiet, or when the time is over. */
    async within(limitMs: number): Promise<void> {
      let cancel = () => {};
      const limit = new Promise<void>((resolve) => {
        cancel = clock.after(limitMs, resolve);
      });
      const quiet = new Promise<void>((resolve) => {
        onQuiet = resolve;
        check();
      });
      await Promise.race([quiet, limit]);
      cancel();
    },
  };
}
