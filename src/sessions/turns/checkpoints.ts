import type { Clock } from "../../base/clock.ts";

export const checkpointEveryMs = 2_000;
/** Less than that isn't worth a write: it is said again in a moment. */
export const checkpointLeastBytes = 1_024;

export type Checkpoints = {
  /** There is more of the answer. */
  changed(): void;
  stop(): void;
};

/**
 * Keeps what was said so far, now and then, for the case that this pod is lost. One is under way at a
 * time, and none where nothing has changed.
 */
export function keepCheckpoints(
  clock: Clock,
  answer: {
    readonly bytes: () => number /** Never rejects. */;
    readonly store: () => Promise<void>;
  },
): Checkpoints {
  let cancel: (() => void) | undefined;
  let underWay = false;
  let changedMeanwhile = false;
  let stopped = false;

  const changed = (): void => {
    if (stopped) return;
    if (underWay) changedMeanwhile = true;
    else cancel ??= clock.after(checkpointEveryMs, () => void due());
  };

  const due = async (): Promise<void> => {
    cancel = undefined;
    if (underWay || answer.bytes() < checkpointLeastBytes) return;
    underWay = true;
    changedMeanwhile = false;
    await answer.store();
    underWay = false;
    if (changedMeanwhile) changed();
  };
  return {
    changed,
    stop() {
      stopped = true;
      cancel?.();
    },
  };
}
