import type { Clock } from "../base/clock.ts";
import { messageOf } from "../base/errors.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { createSharedRun } from "../base/semaphore.ts";
import type { Database, Row } from "../store/database.ts";
import { correctCounts, dropEmptyCounts, readDrift, type TenantDrift } from "./sql.ts";

export type TenantLeaderOptions = { database: Database; clock: Clock; log?: Logger };

// It reads every session. What it corrects is rare: sessions from before quotas were set, and what pods
// without quotas in their config have stored.
const compareEveryMs = 10 * 60_000;
const tenantsPerPass = 10_000;

/** The leader's work on the counts of tenants: compares them with the sessions, and corrects them. */
export function createTenantLeader({ database, clock, log = silentLogger }: TenantLeaderOptions) {
  let comparedMs = -Infinity;

  const pass = async (): Promise<void> => {
    if (clock.monotonic() - comparedMs < compareEveryMs) return;
    comparedMs = clock.monotonic();
    try {
      await database.write([dropEmptyCounts()], { channels: [], lossy: true });
      const found = await database.read(readDrift(tenantsPerPass), { cold: true });
      if (found.length === 0) return;
      await database.write([correctCounts(found.map(toDrift))]);
      log.info({ tenants: found.length }, "counts of tenants corrected");
      // The others follow at the next beat.
      if (found.length === tenantsPerPass) comparedMs = -Infinity;
    } catch (error) {
      log.warn({ error: messageOf(error) }, "counts of tenants not compared");
    }
  };

  const passes = createSharedRun(pass);

  return {
    pass,
    /** Called at every beat of a pod that leads. A new pass starts only after the last one has ended. */
    beat: () => void passes.run(),
    stop: passes.ended,
  };
}

function toDrift(row: Row): TenantDrift {
  return {
    tenant: row["tenant"] as string,
    sessions: Number(row["sessions"]),
    turns: Number(row["turns"]),
    bytes: Number(row["bytes"]),
    corrected: {
      sessions: Number(row["old_sessions"]),
      turns: Number(row["old_turns"]),
      bytes: Number(row["old_bytes"]),
    },
  };
}
