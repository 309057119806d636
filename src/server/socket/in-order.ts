import { FlotillaError } from "../../base/errors.ts";

/** Does what is asked of a key one after another, and what is asked of others meanwhile. */
export type InOrder = {
  /** Never rejects: `act` says itself what went wrong. Throws `overloaded` where too much waits. */
  add(key: string, act: () => Promise<void>): void;
  close(): void;
};

export function createInOrder({ most }: { most: number }): InOrder {
  /** The last of each key that has something under way. */
  const last = new Map<string, Promise<void>>();
  let underWay = 0;
  let closed = false;
  return {
    add(key, act) {
      if (underWay >= most) {
        throw new FlotillaError(
          "overloaded",
          `${most} things are under way on this connection: wait for their answers`,
          { details: { most }, retryAfterMs: 100 },
        );
      }
      underWay++;
      const run = async () => {
        if (!closed) await act();
        underWay--;
        if (last.get(key) === mine) last.delete(key);
      };
      const before = last.get(key);
      const mine: Promise<void> = before ? before.then(run) : Promise.resolve().then(run);
      last.set(key, mine);
    },
    close() {
      closed = true;
    },
  };
}
