import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openLockedRows } from "../../../store/contract/locked-rows.ts";
import { sql, type Statement, table } from "../../../store/sql.ts";
import { beatHeads, insertHeads, moveHeads, releaseHeads } from "./heads.ts";

let place: Awaited<ReturnType<typeof openLockedRows>>;

beforeEach(async () => {
  place = await openLockedRows();
});
afterEach(() => place.close());

const backwards = [2, 1].map((logId) => ({
  logId,
  incarnation: "i",
  term: 1,
  owner: "pod",
  host: null,
  offset: 0,
  recordId: "",
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
    const { database, holder, other } = place;
    await database.write([...insertHeads(logs), own]);
    // The last row of the table now, and read last where the whole table is read.
    await other.query("update flotilla.session_log set beat = beat where log_id = 1");
    await holder.query("begin");
    await holder.query("select 1 from flotilla.session_log where log_id = 1 for update");
    const writing = database.write([statement]);
    await place.untilWaiting();
    const later = "select 1 from flotilla.session_log where log_id = 2 for update nowait";
    expect((await other.query(later)).rowCount).toBe(1);
    await holder.query("commit");
    await writing;
  });

  test.each(Object.entries(statements))(
    "doesn't wait for one it lost: %s",
    async (_, statement) => {
      const { database, holder, other } = place;
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
