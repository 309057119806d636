import type { Clock } from "../../base/clock.ts";
import type { FlotillaError } from "../../base/errors.ts";

// Longer than user interfaces take to let go of something and take it up again.
const lingerMs = 3_000;

export type Want = (isWanted: boolean) => void;

export type Lingering = {
  start: () => void;
  stop: () => void;
  /** Why nothing comes any more: then there is nothing to stop, and nothing to wait for. */
  over: () => FlotillaError | undefined;
};

/** Starts something with the first who wants it, and stops it a while after the last has gone. */
export function lingering(clock: Clock, { start, stop, over }: Lingering): Want {
  let isStarted = false;
  let cancel: (() => void) | undefined;
  return (isWanted) => {
    cancel?.();
    cancel = undefined;
    if (isWanted && !isStarted) {
      isStarted = true;
      start();
    } else if (!isWanted && isStarted && !over()) {
      cancel = clock.after(lingerMs, () => {
        isStarted = false;
        stop();
      });
    }
  };
}
