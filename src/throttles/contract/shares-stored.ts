import type { Database } from "../../store/database.ts";
import { noCounts } from "../learning/sample.ts";
import { type ControllerOptions, settingsOf } from "../settings.ts";
import type { Stats } from "../shares/fleet-learning.ts";
import {
  changeLearned,
  changeShares,
  createThrottles,
  type Gate,
  getShares,
  type Place,
  putReports,
  toSharedRow,
} from "../shares/sql.ts";

export type StoredThrottle = Place & {
  readonly bound: number;
  readonly options?: ControllerOptions;
  readonly gate?: Partial<Gate>;
  readonly stats?: Partial<Stats>;
  /** What each pod holds, uses and wants. */
  readonly pods?: Readonly<Record<string, StoredPod>>;
};

type StoredPod = {
  readonly share: number;
  readonly inFlight: number;
  readonly waiting: number;
  readonly callsWaiting?: number;
};

/** Stores a throttle as pods and a leader would have left it, for those who only look. */
export async function storeThrottle(database: Database, given: StoredThrottle): Promise<void> {
  const { name, key, bound, options, gate, stats, pods = {} } = given;
  const place = { name, key };
  const settings = JSON.stringify(settingsOf(options));
  await database.write([createThrottles([{ ...place, bound, settings }])]);
  const revNow = async () => toSharedRow((await database.read(getShares([place])))[0]!).rev;
  await database.write([
    changeLearned(place, await revNow(), {
      bound,
      epoch: 7,
      gate: JSON.stringify({ breaker: "closed", holdMs: 0, ...gate }),
      state: "{}",
      stats: JSON.stringify({ outcomes: noCounts, ...stats }),
    }),
  ]);
  const shares = Object.entries(pods).map(([podId, { share }]) => [
    podId,
    { share, renewal: 1, leaseMs: 3_000, longestMs: 1_000 },
  ]);
  const reports = Object.entries(pods).map(([podId, { inFlight, waiting, callsWaiting = 0 }]) => ({
    ...place,
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
    changeShares(place, await revNow(), JSON.stringify(Object.fromEntries(shares))),
    putReports(reports),
  ]);
}
