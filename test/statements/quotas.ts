import * as quotas from "../../src/quotas/sql.ts";
import { sql } from "../../src/store/sql.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

const change = { tenant: "acme", sessions: 1, turns: 1, bytes: 200 };
const corrected = { sessions: 3, turns: 0, bytes: 50 };

export const quotaStatements: RoomStatements = {
  "src/quotas/sql.ts": sqlFile(quotas, {
    addTenantCounts: () =>
      quotas.addTenantCounts(
        [
          { ...change, logId: 1 },
          { ...change, logId: 2 },
        ],
        (logId) => sql`${logId} = 1`,
      ),
    readCounts: () => quotas.readCounts(["acme", "other"]),
    listCounts: () => quotas.listCounts("acme", 51),
    readDrift: () => quotas.readDrift(100),
    correctCounts: () => quotas.correctCounts([{ ...change, corrected }]),
    announceServer: () => quotas.announceServer("server-1"),
    dropEmptyCounts: () => quotas.dropEmptyCounts(),
    dropServers: () => quotas.dropServers(10_000),
    countServers: () => quotas.countServers(),
    removeServer: () => quotas.removeServer("server-1"),
  }),
};
