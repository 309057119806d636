import type { Clock } from "./clock.ts";
import { FlotillaError } from "./errors.ts";

/**
 * Does what is asked of it, at most so much at once, in the order in which it was asked. A thousand
 * clients that come back together then wait for each other, not everybody else for them; and as every
 * page of a long history queues anew, short ones aren't held up by it.
 */
export type Semaphore = {
  /**
   * Rejects with `store_busy` where its turn doesn't come in time. Lines take turns, so that a long one
   * holds up the others by one each time. Without a name it's one line.
   */
  run<Answer>(act: () => Promise<Answer>, line?: string): Promise<Answer>;
  /** Rejects what waits with this error. What is under way goes on. */
  refuse(error: unknown): void;
  readonly underWay: number;
  readonly waiting: number;
};

export type SemaphoreOptions = {
  readonly clock: Pick<Clock, "after">;
  /** How long anything waits for its turn. */
  readonly waitMs: number;
};

type Waiting = { begin(): void; refuse(error: unknown): void };

export function createSemaphore(max: number, { clock, waitMs }: SemaphoreOptions): Semaphore {
  /** Those in which something waits, in the order of their turns. */
  const lines = new Map<string, Set<Waiting>>();
  let waiting = 0;
  let underWay = 0;

  const turn = (name: string): Promise<void> =>
    new Promise((resolve, reject) => {
      const line = lines.get(name) ?? new Set();
      const end = () => {
        line.delete(each);
        if (line.size === 0) lines.delete(name);
        waiting--;
        cancel();
      };
      const each: Waiting = {
        begin() {
          end();
          resolve();
        },
        refuse(error) {
          end();
          reject(error);
        },
      };
      line.add(each);
      lines.set(name, line);
      waiting++;
      const cancel = clock.after(waitMs, () => each.refuse(tooMany(waitMs)));
    });

  const releaseSlot = () => {
    const [first] = lines;
    // What waits takes the place over, so that nothing comes in between.
    if (!first) return void underWay--;
    const [name, line] = first;
    lines.delete(name);
    const [next] = line;
    if (line.size > 1) lines.set(name, line);
    next!.begin();
  };
  return {
    async run(act, line = "") {
      if (underWay < max) underWay++;
      else await turn(line);
      try {
        return await act();
      } finally {
        releaseSlot();
      }
    },
    refuse(error) {
      for (const line of lines.values()) for (const each of line) each.refuse(error);
    },
    get underWay() {
      return underWay;
    },
    get waiting() {
      return waiting;
    },
  };
}

function tooMany(waitMs: number): FlotillaError {
  const message = `so much is read at once that this waited for ${waitMs} ms: try again`;
  return new FlotillaError("store_busy", message, { details: { waitMs } });
}
