import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { OpenStore } from "../store/contract/database.ts";
import { storeKinds } from "../store/contract/kinds.ts";
import type { Database } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { rows, sql, table } from "../store/sql.ts";
import { createStepReader } from "./reader.ts";
import { maxRowsTogether, readSteps, toStoredStep } from "./sql.ts";

describe.each(storeKinds)("journals that are read at the same time on $name", (kind) => {
  let store: OpenStore;
  let database: Database;
  /** How many reads the reader has made. */
  let reads = 0;
  const counted: Pick<Database, "read"> = {
    read: (statement, options) => (reads++, database.read(statement, options)),
  };

  beforeAll(async () => {
    store = await kind.open();
    database = store.database;
    await migrate(database);
  });
  afterAll(async () => {
    await database.close();
    await store.remove();
  });

  const put = async (ownerId: string, part: string, count: number) => {
    const columns = { key: "text", seq: "integer", value: "text" } as const;
    const values = Array.from({ length: count }, (_, at) => [
      // Keys sort otherwise than numbers do.
      `${String(count - at)} of ${ownerId}`,
      at + 1,
      at === 1 ? JSON.stringify("x".repeat(9_000)) : String(at),
    ]);
    await database.write([
      sql`insert into ${table("step_journal")} (owner_id, part, key, seq, token, kind, value, started_at)
        select ${ownerId}, ${part}, given.key, given.seq, 1, 'step', given.value, 0
        from ${rows(columns, values)} given`,
    ]);
  };

  test("come by one read, each with its own rows, as if it were read alone", async () => {
    const owners = ["one", "two", "none"].map((ownerId) => ({ ownerId, part: "" }));
    await put("one", "", 3);
    await put("one", "charge", 2);
    await put("two", "", 5);
    const all = [...owners, { ownerId: "one", part: "charge" }];
    reads = 0;
    const read = createStepReader(counted);
    const found = await Promise.all(all.map(read));
    expect(reads).toBe(1);
    expect(found.map((each) => each.length)).toEqual([3, 5, 0, 2]);
    for (const [at, owner] of all.entries()) {
      const alone = await database.read(readSteps(owner));
      const without = (row: (typeof alone)[number]) => ({ ...toStoredStep(row), ageMs: 0 });
      expect(found[at]!.map(without)).toEqual(alone.map(without));
    }
    expect(toStoredStep(found[1]![1]!).value).toBeUndefined();
  });

  test("are whole where one has more rows than are read together", async () => {
    await put("many", "", maxRowsTogether + 7);
    await put("full", "", maxRowsTogether);
    reads = 0;
    const read = createStepReader(counted);
    const [many, full] = await Promise.all(
      ["many", "full"].map((ownerId) => read({ ownerId, part: "" })),
    );
    expect(many).toHaveLength(maxRowsTogether + 7);
    expect(many!.map((row) => Number(row["seq"]))).toEqual(many!.map((_, at) => at + 1));
    expect(full).toHaveLength(maxRowsTogether);
    expect(reads).toBe(2);
  });
});
