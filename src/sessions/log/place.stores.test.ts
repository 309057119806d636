import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { uuidv7 } from "../../base/ids.ts";
import { seededRandom } from "../../base/random.ts";
import type { OpenStore } from "../../store/contract/database.ts";
import { storeKinds } from "../../store/contract/kinds.ts";
import { migrate, schemaState } from "../../store/migrate.ts";
import { logPlaceOf, placeOnStreams, refuseStreams } from "./place.ts";
import { createSqlJournal } from "./sql-journal.ts";

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
      message: expect.stringContaining('set nats.use to "bus"'),
    });
    expect((await logPlaceOf(store.database)).place).toBe("sql");
    expect(await schemaState(store.database)).toEqual(before);
  });

  test("is NATS for good: no logs are created in the database then, and no older pod starts", async () => {
    await placeOnStreams(store.database);
    await journal().create(2);
    expect(await journal().heads()).toEqual([]);
    const { needs, version } = await schemaState(store.database);
    expect(needs).toBe(version);
  });
});
