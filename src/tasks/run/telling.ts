import type { Clock } from "../../base/clock.ts";
import { tellState } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { Reason } from "./pod-status.ts";

/** What a pod says of itself in its row, for people on other machines. */
export type PodState = {
  /** How many tasks it takes on at most, right now. */
  readonly holds: number;
  /** Why it claims no more than it does; empty where it takes whatever comes. */
  readonly reasons: readonly Reason[];
};

export type Telling = {
  /** There may be something new to say. */
  look(): void;
  /** Resolves when what was being said is stored, so that it doesn't come after the pod has left, or soon. */
  stop(): Promise<void>;
};

const everyMs = 1_000;
const lastWordMs = 1_000;

/**
 * Stores why a pod doesn't claim more: at most once a second, and only where it isn't what was stored
 * last. A pod that is never held back stores nothing.
 */
export function createTelling(parts: {
  podId: string;
  database: Database;
  clock: Clock;
  state: () => PodState;
}): Telling {
  const { podId, database, clock, state } = parts;
  let stored = JSON.stringify({ holds: state().holds, reasons: [] });
  let notBeforeMs = -Infinity;
  let writing: Promise<void> | undefined;

  const write = async (text: string): Promise<void> => {
    try {
      await database.write([tellState(podId, text)]);
    } catch {
      // Said with the next change: a store that is away can't be told that it is.
      stored = "";
    }
    writing = undefined;
  };
  return {
    look() {
      if (writing || clock.monotonic() < notBeforeMs) return;
      const text = JSON.stringify(state());
      if (text === stored) return;
      stored = text;
      notBeforeMs = clock.monotonic() + everyMs;
      writing = write(text);
    },
    async stop() {
      notBeforeMs = Infinity;
      if (writing === undefined) return;
      let cancel = () => {};
      const late = new Promise<void>((resolve) => {
        cancel = clock.after(lastWordMs, resolve);
      });
      await Promise.race([writing, late]);
      cancel();
    },
  };
}
