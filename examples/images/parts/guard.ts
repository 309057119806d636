import type { Health, HealthChecker } from "./health.ts";
import type { PoolManager } from "./pool.ts";

/** The guard didn't let an operation begin. Nothing was done. */
export class Unhealthy extends Error {
  override readonly name = "Unhealthy";
  readonly health: Health;
  constructor(operation: string, health: Health) {
    const wrong = health.checks.filter(({ problem }) => problem !== null);
    const problems = wrong.map(({ name, problem }) => `${name}: ${problem}`).join("; ");
    super(`${operation} doesn't begin while something is wrong: ${problems}`);
    this.health = health;
  }
}

/** Stands before everything that touches the pool. */
export type OperationGuard = {
  /**
   * Runs an operation when nothing else does something with `key`, when there is a place free among
   * those of its kind, and when all is well. An earlier attempt that was told to stop, and hasn't yet,
   * has the key until it has.
   */
  readonly run: <Result>(
    kind: string,
    key: string,
    operation: () => Promise<Result>,
    signal?: AbortSignal,
  ) => Promise<Result>;
  readonly running: (kind: string) => number;
};

export type GuardOptions = {
  readonly health: HealthChecker;
  readonly pool: PoolManager;
  /** How many operations of a kind run at once. Default: one. */
  readonly atOnce?: Readonly<Record<string, number>>;
};

export function createGuard({ health, pool, atOnce = {} }: GuardOptions): OperationGuard {
  const keys = new Map<string, Places>();
  const kinds = new Map<string, Places>();
  const placesOf = (all: Map<string, Places>, name: string, most: number): Places => {
    const known = all.get(name) ?? createPlaces(most);
    all.set(name, known);
    return known;
  };
  const checkHealth = async (operation: string): Promise<void> => {
    if ((await health.check()).isHealthy) return;
    // It may only lack its folders, and then making them is all that it needs.
    await pool.ensure();
    const found = await health.check();
    if (!found.isHealthy) throw new Unhealthy(operation, found);
  };
  return {
    running: (kind) => kinds.get(kind)?.taken() ?? 0,
    async run(kind, key, operation, signal) {
      const name = `${kind} of ${key}`;
      const ofKey = placesOf(keys, key, 1);
      const ofKind = placesOf(kinds, kind, atOnce[kind] ?? 1);
      await ofKey.take(signal);
      try {
        await ofKind.take(signal);
        try {
          await checkHealth(name);
          signal?.throwIfAborted();
          return await operation();
        } catch (thrown) {
          // Whatever was thrown, those outside get an error that says where it was.
          if (thrown instanceof Error) throw thrown;
          throw new Error(`${name} threw ${JSON.stringify(thrown)}`, { cause: thrown });
        } finally {
          ofKind.free();
        }
      } finally {
        ofKey.free();
        if (ofKey.taken() === 0) keys.delete(key);
      }
    },
  };
}

type Places = {
  readonly take: (signal?: AbortSignal) => Promise<void>;
  readonly free: () => void;
  readonly taken: () => number;
};

/** So many may be in at once; the others wait, in the order in which they came. */
function createPlaces(most: number): Places {
  let taken = 0;
  const waiting: (() => void)[] = [];
  return {
    taken: () => taken,
    async take(signal) {
      signal?.throwIfAborted();
      if (taken < most) return void taken++;
      await new Promise<void>((resolve, reject) => {
        const enter = () => {
          signal?.removeEventListener("abort", leave);
          resolve();
        };
        const leave = () => {
          waiting.splice(waiting.indexOf(enter), 1);
          reject(signal!.reason as Error);
        };
        waiting.push(enter);
        signal?.addEventListener("abort", leave, { once: true });
      });
    },
    free() {
      // The place goes to the next one, and is taken all the time.
      const next = waiting.shift();
      if (next) next();
      else taken--;
    },
  };
}
