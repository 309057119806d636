import { FlotillaError } from "../../base/errors.ts";

/**
 * Begins what is asked of a key in the order of asking. What has begun goes on side by side: whoever it
 * is asked of keeps the order from there.
 */
export type InOrder = {
  /**
   * `check` comes first, and what follows waits for it where it takes time; with `alone`, it waits for
   * `act` as well. Neither rejects: they say themselves what went wrong, and `check` then gives false.
   * Throws `overloaded` where too much is under way.
   */
  add(key: string, asked: Asked): void;
  close(): void;
};

export type Asked = {
  /** Undefined where there is nothing to wait for. */
  readonly check: () => Promise<boolean> | undefined;
  readonly act: () => Promise<void>;
  readonly alone: boolean;
};

export function createInOrder({ most }: { most: number }): InOrder {
  /** What the next of each key has to wait for. */
  const gates = new Map<string, Promise<void>>();
  let underWay = 0;
  let closed = false;

  const start = async (act: () => Promise<void>): Promise<void> => {
    if (!closed) await act();
    underWay--;
  };

  return {
    add(key, { check, act, alone }) {
      if (underWay >= most) {
        throw new FlotillaError(
          "overloaded",
          `${most} things are under way on this connection: wait for their answers`,
          { details: { most }, retryAfterMs: 100 },
        );
      }
      underWay++;
      const before = gates.get(key);
      const checking = before ? before.then(check) : check();
      if (!checking && !alone) return void start(act);
      const pass = async (): Promise<void> => {
        if ((await checking) === false) underWay--;
        else if (alone) await start(act);
        else void start(act);
      };
      const gate: Promise<void> = pass().then(() => {
        if (gates.get(key) === gate) gates.delete(key);
      });
      gates.set(key, gate);
    },
    close() {
      closed = true;
    },
  };
}
