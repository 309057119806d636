import pg from "pg";
import { until } from "../../base/contract/movable-clock.ts";
import { openStore } from "../open.ts";
import { temporaryDatabase } from "./kinds.ts";

/** A Postgres on which one client holds locks that a write waits for, while another looks. */
export async function openLockedRows() {
  const { url, remove } = await temporaryDatabase();
  const database = await openStore(url);
  const holder = new pg.Client(url);
  const other = new pg.Client(url);
  await Promise.all([holder.connect(), other.connect()]);

  const isWaiting = async () => {
    const { rowCount } = await other.query(
      "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
    );
    return rowCount === 1;
  };
  return {
    database,
    holder,
    other,
    untilWaiting: () => until("the write to wait", isWaiting),
    async close(): Promise<void> {
      await Promise.all([holder.end(), other.end(), database.close()]);
      await remove();
    },
  };
}
