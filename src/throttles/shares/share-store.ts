import { hasCode } from "../../base/errors.ts";
import type { Database, Row } from "../../store/database.ts";
import type { StatedRate } from "../limiter/limiter.ts";
import type { DemandRow } from "./holder.ts";
import {
  changeShares,
  getDemands,
  getShares,
  insertThrottles,
  noteFirstUse,
  putReports,
  putSettings,
  type ReportRow,
  type SharedRow,
  type ThrottleId,
  throttleMapKey,
  toSharedRow,
} from "./sql.ts";
import { raiseToRate } from "./stated-rate.ts";

/** Where the shares of all pods are kept, as one pod reads and changes them. */
export type ShareStore = {
  /** Tells the pod's demand, and reads the rows and the other pods' demands. */
  sync(held: readonly HeldThrottle[]): Promise<readonly SharedThrottle[]>;
  /**
   * A compare-and-set: replaces the shares in the row at `rev`, once. Rejects with `unknown_outcome` if the
   * change may be stored, now or later, and with anything else if it isn't and never will be.
   */
  change(id: ThrottleId, rev: number, shares: string): Promise<ShareChange>;
  /** Raises the bound to what the downstream's first answer states. */
  raise(id: ThrottleId, rate: StatedRate): Promise<void>;
  /** The pod doesn't use this throttle any more. */
  forget(id: ThrottleId): void;
};

/** A throttle as the code of a pod declares it, with what the pod reports of it. */
export type HeldThrottle = {
  readonly id: ThrottleId;
  /** What a row begins with, if no pod has used the throttle before. */
  readonly declared: { readonly bound: number; readonly settings: string };
  readonly report: ReportRow;
};

/** What was read of one throttle, in the order in which it was asked. */
export type SharedThrottle = {
  readonly row: SharedRow | undefined;
  readonly demands: readonly DemandRow[];
};

/**
 * `unknown`: the answer was lost, and the row has moved on since. It shows whether the change is stored: if it
 * isn't, it can't be any more.
 */
export type ShareChange = {
  readonly type: "stored" | "refused" | "unknown";
  readonly row: SharedRow | undefined;
};

/** Shares in the rows of the store. */
export function createSqlShares({ database }: { database: Database }): ShareStore {
  /** The throttles that have a row. */
  const known = new Set<string>();

  return {
    async sync(held) {
      const ids = held.map(({ id }) => id);
      const fresh = held
        .filter(({ id }) => !known.has(mapKey(id)))
        .map(({ id, declared }) => ({ ...id, ...declared }));
      const tables = await database.write([
        ...(fresh.length > 0
          ? [insertThrottles(fresh), noteFirstUse(fresh), putSettings(fresh)]
          : []),
        putReports(held.map(({ report }) => report)),
        getShares(ids),
        getDemands(ids),
      ]);
      const rows = byThrottle(tables.at(-2)!);
      const demands = byThrottle(tables.at(-1)!);
      return ids.map((id) => {
        const at = mapKey(id);
        const row = rows.get(at)?.[0];
        if (row) known.add(at);
        else known.delete(at);
        return { row: row && toSharedRow(row), demands: (demands.get(at) ?? []).map(toDemand) };
      });
    },

    async change(id, rev, shares) {
      const [changed, found] = await database.write([
        changeShares(id, rev, shares),
        getShares([id]),
      ]);
      const row = found![0];
      return {
        type: changed!.length > 0 ? "stored" : "refused",
        row: row && toSharedRow(row),
      };
    },

    raise: (id, rate) => raiseToRate(database, id, rate),
    forget: (id) => void known.delete(mapKey(id)),
  };
}

/** Whether a change that was rejected so may be stored all the same. */
export function mayBeStored(error: unknown): boolean {
  return hasCode(error, "unknown_outcome");
}

/** The key of a throttle in maps. */
export function mapKey({ name, key }: ThrottleId): string {
  return throttleMapKey(name, key);
}

export function byThrottle(rows: readonly Row[]): Map<string, Row[]> {
  const all = new Map<string, Row[]>();
  for (const row of rows) {
    const at = throttleMapKey(row["name"] as string, row["key"] as string);
    const known = all.get(at);
    if (known) known.push(row);
    else all.set(at, [row]);
  }
  return all;
}

function toDemand(row: Row): DemandRow {
  return { podId: row["pod_id"], seq: Number(row["seq"]), demand: Number(row["demand"]) };
}
