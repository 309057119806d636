import type { Clock } from "../../base/clock.ts";

/** Pings every connection once per interval, a part of them at a time, on one timer for all. */
export type Pings = {
  /** The function that is returned ends it. */
  add(connection: { ping(): void }): () => void;
};

const parts = 20;

export function createPings(clock: Clock, everyMs: number): Pings {
  const turns = Array.from({ length: parts }, () => new Set<{ ping(): void }>());
  let added = 0;
  let count = 0;
  let turn = 0;
  let cancel: (() => void) | undefined;

  const tick = () => {
    cancel = clock.after(everyMs / parts, tick);
    turn = (turn + 1) % parts;
    for (const connection of turns[turn]!) connection.ping();
  };

  return {
    add(connection) {
      const mine = turns[added++ % parts]!;
      mine.add(connection);
      count++;
      cancel ??= clock.after(everyMs / parts, tick);
      return () => {
        if (!mine.delete(connection) || --count > 0) return;
        cancel?.();
        cancel = undefined;
      };
    },
  };
}
