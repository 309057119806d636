import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../../base/contract/movable-clock.ts";
import { temporaryDatabase } from "../../../store/contract/kinds.ts";
import type { Database } from "../../../store/database.ts";
import { openStore } from "../../../store/open.ts";
import { sql, type Statement, table } from "../../../store/sql.ts";
import { beatHeads, insertHeads, moveHeads, releaseHeads } from "./heads.ts";

let database: Database;
let holder: pg.Client;
let other: pg.Client;
let remove: () => Promise<void>;

beforeEach(async () => {
  const place = await temporaryDatabase();
  ({ remove } = place);
  database = await openStore(place.url);
  [holder, other] = [new pg.Client(place.url), new pg.Client(place.url)];
  await Promise.all([holder.connect(), other.connect()]);
});
afterEach(async () => {
  await Promise.all([holder.end(), other.end(), database.close()]);
  await remove();
});

const isWaiting = async () => {
  const { rowCount } = await other.query(
    "select 1 from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()",
  );
  return rowCount === 1;
};

const backwards = [2, 1].map((logId) => ({
  logId,
  incarnation: "i",
  term: 1,
  owner: "pod",
  host: null,
  offset: 0,
  recordId: "",
  beat: 0,
}));
const statements: Record<string, Statement> = {
  records: moveHeads(backwards.map((at) => ({ at, recordId: `r${at.logId}` }))),
  beats: beatHeads("pod", backwards),
  releases: releaseHeads("pod", backwards),
};

describe("on Postgres, a write of several heads that waits for one", () => {
  const logs = Array.from({ length: 256 }, () => "i");
  const own = sql`update ${table("session_log")} set term = 1, owner = 'pod'`;

  test.each(Object.entries(statements))("holds none after it: %s", async (_, statement) => {
    await database.write([...insertHeads(logs), own]);
    // The last row of the table now, and read last where the whole table is read.
    await other.query("update flotilla.session_log set beat = beat where log_id = 1");
    await holder.query("begin");
    await holder.query("select 1 from flotilla.session_log where log_id = 1 for update");
    const writing = database.write([statement]);
    await until("the write to wait", isWaiting);
    const later = "select 1 from flotilla.session_log where log_id = 2 for update nowait";
    expect((await other.query(later)).rowCount).toBe(1);
    await holder.query("commit");
    await writing;
  });

  test.each(Object.entries(statements))(
    "doesn't wait for one it lost: %s",
    async (_, statement) => {
      await database.write([...insertHeads(logs), own]);
      await other.query(
        "update flotilla.session_log set term = 2, owner = 'next' where log_id = 1",
      );
      await holder.query("begin");
      await holder.query("select 1 from flotilla.session_log where log_id = 1 for update");
      await database.write([statement]);
      const moved = "select 1 from flotilla.session_log where log_id = 2 and xmin <> $1::xid";
      const { rows } = await other.query("select xmin from flotilla.session_log where log_id = 3");
      expect((await other.query(moved, [rows[0].xmin])).rowCount).toBe(1);
      await holder.query("commit");
    },
  );
});
