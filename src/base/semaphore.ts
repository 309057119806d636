import type { Clock } from "./clock.ts";
import { messageOf } from "./errors.ts";
import { type Logger, silentLogger } from "./log.ts";

/**
 * Runs at most `max` actions at once, in the order of the calls, so that many of one kind wait for
 * each other and do not delay other work.
 */
export type Semaphore = {
  /**
   * Rejects with `late()` if its turn does not come in time. Lines take turns, so that a long
   * one delays the others by one action each time. Without a name there is one line.
   */
  run<Answer>(act: () => Promise<Answer>, line?: string): Promise<Answer>;
  /** Rejects all waiting actions with this error. Running ones continue. */
  refuse(error: unknown): void;
  readonly underWay: number;
  readonly waiting: number;
};

export type SemaphoreOptions = {
  readonly clock: Pick<Clock, "after">;
  /** How long an action waits for its turn. */
  readonly waitMs: number;
  /** The error of an action whose turn did not come in time. */
  readonly late: (waitMs: number) => Error;
};

type Waiting = { begin(): void; refuse(error: unknown): void };

export function createSemaphore(max: number, { clock, waitMs, late }: SemaphoreOptions): Semaphore {
  /** Lines with waiting actions, in the order of their turns. */
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
      const cancel = clock.after(waitMs, () => each.refuse(late(waitMs)));
    });

  const releaseSlot = () => {
    const [first] = lines;
    // A waiting action takes over the slot, so that no new one comes in between.
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

export type SharedRun = {
  /** Begins a run, unless one is under way, and resolves when it has ended. */
  run(): Promise<void>;
  /** Resolves when no run is under way. */
  ended(): Promise<void>;
};

/** Work that is asked for again and again, and is done once at a time: calls share the run under way. */
export function createSharedRun(work: () => Promise<void>): SharedRun {
  let running: Promise<void> | undefined;
  return {
    run: () =>
      (running ??= work().finally(() => {
        running = undefined;
      })),
    async ended() {
      await running;
    },
  };
}

export type LeaderPassOptions = {
  clock: Pick<Clock, "monotonic">;
  /** How long after a pass has begun the next one may. Default: at every beat. */
  everyMs?: number;
  log?: Logger | undefined;
  /** What is logged if a pass fails. */
  failed: string;
};

/** Work that the leader does again and again, one pass at a time. */
export type LeaderPass = {
  /** Does the work now. Never rejects: what a pass leaves undone, the next one finds. */
  pass(): Promise<void>;
  /** Called at every beat of a pod that leads. A new pass starts only after the last one has ended. */
  beat(): void;
  /** Resolves when no pass is under way. */
  stop(): Promise<void>;
};

export function createLeaderPass(
  work: () => Promise<void>,
  { clock, everyMs = 0, log = silentLogger, failed }: LeaderPassOptions,
): LeaderPass {
  let begunMs = -Infinity;
  const pass = async (): Promise<void> => {
    try {
      await work();
    } catch (error) {
      log.warn({ error: messageOf(error) }, failed);
    }
  };
  const passes = createSharedRun(pass);
  return {
    pass,
    beat() {
      if (clock.monotonic() - begunMs < everyMs) return;
      begunMs = clock.monotonic();
      void passes.run();
    },
    stop: passes.ended,
  };
}
