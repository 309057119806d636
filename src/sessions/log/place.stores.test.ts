import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { uuidv7 } from "../../base/ids.ts";
import { seededRandom } from "../../base/random.ts";
import type { OpenStore } from "../../store/contract/database.ts";
import { storeKinds } from "../../store/contract/kinds.ts";
import { migrate, schemaState } from "../../store/migrate.ts";
import { sql } from "../../store/sql.ts";
import type { LogRecord } from "./journal.ts";
import {
  leaveDatabase,
  logPlaceOf,
  placeOnStreams,
  readWatermarks,
  refuseStreams,
  returnToDatabase,
} from "./place.ts";
import { createSqlJournal } from "./sql-journal.ts";

/** Pods of the schema before know of no streams. */
const firstWithStreams = 7;

describe.each(storeKinds)("the place of logs on $name", (kind) => {
  let store: OpenStore;
  const ids = uuidv7({ now: () => 1_800_000_000_000 }, seededRandom(7));
  const journal = () => createSqlJournal({ database: store.database, ids });

  beforeEach(async () => {
    store = await kind.open();
    await migrate(store.database);
  });
  afterEach(async () => {
    await store.database.close();
    await store.remove();
  });

  test("is the database at first, under an id of its own", async () => {
    const { place, clusterId } = await logPlaceOf(store.database);
    expect(place).toBe("sql");
    expect(clusterId).toMatch(/^[\w-]{16,64}$/);
    await refuseStreams(store.database);
  });

  test("becomes NATS while there are no logs, once, for all that ask", async () => {
    const { clusterId } = await logPlaceOf(store.database);
    const asked = [1, 2, 3].map(() => placeOnStreams(store.database));
    expect(await Promise.all(asked)).toEqual([clusterId, clusterId, clusterId]);
    expect(await logPlaceOf(store.database)).toEqual({ place: "nats", clusterId });
    await expect(refuseStreams(store.database)).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining("give this pod the `nats` of the others"),
    });
  });

  test("stays the database where that has logs, and nothing else changes", async () => {
    await journal().create(2);
    const before = await schemaState(store.database);
    await expect(placeOnStreams(store.database)).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining("`flotilla promote --to nats` moves them"),
    });
    expect((await logPlaceOf(store.database)).place).toBe("sql");
    expect(await schemaState(store.database)).toEqual(before);
  });

  test("is NATS for good: no logs are created in the database then, and no older pod starts", async () => {
    await placeOnStreams(store.database);
    await journal().create(2);
    expect(await journal().heads()).toEqual([]);
    const { needs } = await schemaState(store.database);
    expect(needs).toBeGreaterThanOrEqual(firstWithStreams);
  });

  test("moves to streams and back with all logs, and what an owner sends late is refused", async () => {
    const log = journal();
    await log.create(2);
    const owner = { podId: "pod-1", host: null, recordId: "record-1" };
    const [free, other] = await log.heads();
    const head = (await log.take(free!, owner))!;
    const moved = [head, other!].map((each) => ({
      ...each,
      term: each.term + 10,
      offset: each.offset + 100,
      chain: "00",
    }));
    const always = sql`1 = 1`;
    await store.database.write(leaveDatabase(moved, sql`1 = 0`));
    await store.database.write(leaveDatabase(moved.slice(1), always));
    await store.database.write(leaveDatabase([{ ...moved[0]!, offset: 0 }, moved[1]!], always));
    expect((await logPlaceOf(store.database)).place).toBe("sql");

    await store.database.write(leaveDatabase(moved, always));
    expect((await logPlaceOf(store.database)).place).toBe("nats");
    expect(await log.heads()).toEqual([]);
    await expect(log.commit(head, emptyRecord("record-2"))).resolves.toEqual({ type: "fenced" });
    await expect(log.take(other!, owner)).resolves.toBeUndefined();
    const marks = await readWatermarks(store.database);
    expect(marks.map(({ offset }) => offset)).toEqual(moved.map(({ offset }) => offset));

    const back = moved.map((each) => ({
      ...each,
      term: each.term + 1,
      offset: each.offset + 3,
      recordId: `end-${each.logId}`,
      archived: each.offset,
    }));
    const behind = back.map((each) => ({ ...each, archived: each.archived + 1 }));
    await store.database.write(returnToDatabase(behind, always));
    expect((await logPlaceOf(store.database)).place).toBe("nats");
    await store.database.write(returnToDatabase(back, always));
    expect((await logPlaceOf(store.database)).place).toBe("sql");
    expect(await log.heads()).toEqual(
      back.map(({ logId, incarnation, term, offset, recordId }) => {
        return { logId, incarnation, term, offset, recordId, owner: null, host: null };
      }),
    );
    await expect(log.commit(head, emptyRecord("record-2"))).resolves.toEqual({ type: "fenced" });
    // A flush that waits for its watermark sees the place as it was, so the watermark itself has to be gone.
    expect(await readWatermarks(store.database)).toEqual([]);
    // Sent again long after, neither changes anything.
    const heads = await log.heads();
    await store.database.write(returnToDatabase(back, always));
    expect(await log.heads()).toEqual(heads);
  });
});

function emptyRecord(recordId: string): LogRecord {
  return {
    recordId,
    entries: [],
    headers: [],
    metadata: [],
    reads: [],
    checkpoints: [],
    steps: [],
    stepsOver: [],
  };
}
