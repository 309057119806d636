import type { Clock } from "../base/clock.ts";
import { createLeaderPass } from "../base/semaphore.ts";
import { type Logger, silentLogger } from "../base/log.ts";
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

  const work = async (): Promise<void> => {
    if (clock.monotonic() - comparedMs < compareEveryMs) return;
    comparedMs = clock.monotonic();
    await database.write([dropEmptyCounts()], { channels: [], lossy: true });
    const found = await database.read(readDrift(tenantsPerPass), { cold: true });
    if (found.length === 0) return;
    await database.write([correctCounts(found.map(toDrift))]);
    log.info({ tenants: found.length }, "counts of tenants corrected");
    // The others follow at the next beat.
    if (found.length === tenantsPerPass) comparedMs = -Infinity;
  };

  return createLeaderPass(work, { clock, log, failed: "counts of tenants not compared" });
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
