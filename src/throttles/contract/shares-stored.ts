import type { Database } from "../../store/database.ts";
import { noCounts } from "../learning/sample.ts";
import { type ControllerOptions, resolveControllerOptions } from "../settings.ts";
import type { ThrottleStats } from "../shares/fleet-learning.ts";
import {
  changeLearned,
  changeShares,
  insertThrottles,
  type CallConstraints,
  getShares,
  type ThrottleId,
  putReports,
  toSharedRow,
} from "../shares/sql.ts";

export type StoredThrottle = ThrottleId & {
  readonly bound: number;
  readonly options?: ControllerOptions;
  readonly constraints?: Partial<CallConstraints>;
  readonly stats?: Partial<ThrottleStats>;
  /** What each pod holds, uses and wants. */
  readonly pods?: Readonly<Record<string, StoredPod>>;
};

type StoredPod = {
  readonly share: number;
  readonly inFlight: number;
  readonly waiting: number;
  readonly callsWaiting?: number;
};

/** Stores a throttle as pods and a leader would have left it, for tests that only read. */
export async function storeThrottle(database: Database, given: StoredThrottle): Promise<void> {
  const { name, key, bound, options, constraints, stats, pods = {} } = given;
  const throttleId = { name, key };
  const settings = JSON.stringify(resolveControllerOptions(options));
  await database.write([insertThrottles([{ ...throttleId, bound, settings }])]);
  const revNow = async () => toSharedRow((await database.read(getShares([throttleId])))[0]!).rev;
  await database.write([
    changeLearned(throttleId, await revNow(), {
      bound,
      epoch: 7,
      constraints: JSON.stringify({ breaker: "closed", holdMs: 0, ...constraints }),
      state: "{}",
      stats: JSON.stringify({ outcomes: noCounts, ...stats }),
    }),
  ]);
  const shares = Object.entries(pods).map(([podId, { share }]) => [
    podId,
    { share, renewal: 1, leaseMs: 3_000, longestMs: 1_000 },
  ]);
  const reports = Object.entries(pods).map(([podId, { inFlight, waiting, callsWaiting = 0 }]) => ({
    ...throttleId,
    podId,
    seq: 1,
    demand: inFlight + waiting,
    inFlight,
    waiting,
    callsWaiting,
    totals: "{}",
  }));
  if (reports.length === 0) return;
  await database.write([
    changeShares(throttleId, await revNow(), JSON.stringify(Object.fromEntries(shares))),
    putReports(reports),
  ]);
}
