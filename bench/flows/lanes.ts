import { payload } from "../tasks/work.ts";
import type { Runs } from "./systems/system.ts";

export type Lanes = {
  /** Rejects when one of them fails; never resolves. */
  readonly failed: Promise<never>;
};

/** So many callers, of whom each starts a run when its last one has finished, without end or until all are started. */
export function startLanes(
  runs: Runs,
  atOnce: number,
  finished: (run: number) => void = () => {},
  total = Infinity,
): Lanes {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < total) {
      const number = next++;
      await runs.finish(payload(number));
      finished(number);
    }
  };
  const failed = new Promise<never>((_, reject) => {
    for (let at = 0; at < atOnce; at++) lane().catch(reject);
  });
  failed.catch(() => {});
  return { failed };
}

/** Starts so many and waits for none of them to finish. */
export function startAll(runs: Runs, total: number, started?: (run: number) => void): Lanes {
  // As many at a time as a program that is busy with starting would have under way.
  return startLanes({ ...runs, finish: runs.start }, 100, started, total);
}
