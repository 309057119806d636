import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../store/database.ts";
import { announceWaiting } from "../../pods/sql.ts";

export type Announcing = {
  /** Whether this pod would claim more if there were more. */
  set(waiting: boolean): void;
  stop(): void;
};

// A pod that is busy for a moment only would otherwise write with every task.
const busyForMs = 1_000;
// Who has looked before we said that we wait may commit a little later.
const lookAgainMs = 100;

/**
 * Says in the store whether this pod waits for work, where hints cost those who send them: nobody
 * calls out to pods that are all busy. What was committed before this was known to everybody nobody
 * will be told of, so `onWaiting` is called for another look, twice.
 */
export function createAnnouncing(parts: {
  podId: string;
  database: Database;
  clock: Clock;
  onWaiting: () => void;
}): Announcing {
  const { podId, database, clock, onWaiting } = parts;
  let wanted = false;
  let stored = false;
  let writing = false;
  let stopped = false;
  let cancel: (() => void) | undefined;
  let cancelLook: (() => void) | undefined;

  const later = (delayMs: number, act: () => void) => {
    cancel?.();
    cancel = clock.after(delayMs, () => {
      cancel = undefined;
      act();
    });
  };
  const write = async (waiting: boolean): Promise<void> => {
    writing = true;
    try {
      await database.write([announceWaiting(podId, waiting)]);
      stored = waiting;
    } catch {
      // Whether it was stored isn't known, and polling does meanwhile.
    }
    writing = false;
    if (stopped) return;
    if (wanted !== stored) return later(busyForMs, () => void write(wanted));
    if (!waiting) return;
    // On a timer of its own: the first look makes the pod busy, which sets the other.
    cancelLook?.();
    cancelLook = clock.after(lookAgainMs, onWaiting);
    onWaiting();
  };

  return {
    set(waiting) {
      if (waiting === wanted || !database.announces) return;
      wanted = waiting;
      if (writing || stopped || wanted === stored) return;
      if (wanted) void write(true);
      else later(busyForMs, () => (wanted ? undefined : void write(false)));
    },
    stop() {
      stopped = true;
      cancel?.();
      cancelLook?.();
    },
  };
}
