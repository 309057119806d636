import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { eventLoopTurns, movableClock } from "../../base/contract/movable-clock.ts";
import { uuidv7 } from "../../base/ids.ts";
import { seededRandom } from "../../base/random.ts";
import { memoryKind } from "../../store/contract/kinds.ts";
import type { OpenStore } from "../../store/contract/database.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { fresh, headOf, messageRecord, take } from "../contract/journal-harness.ts";
import type { CommitResult, Journal } from "./journal.ts";
import { createSqlJournal } from "./sql-journal.ts";

describe("the transactions that logs share", () => {
  const clock = movableClock();
  const ids = uuidv7(clock, seededRandom(3));
  let store: OpenStore;
  let journal: Journal;
  /** Writes that wait to be let through. */
  let gates: PromiseWithResolvers<void>[];
  let isGated: boolean;

  beforeEach(async () => {
    store = await memoryKind.open();
    await migrate(store.database);
    gates = [];
    isGated = false;
    const database: Database = {
      ...store.database,
      async write(statements) {
        if (isGated) {
          const gate = Promise.withResolvers<void>();
          gates.push(gate);
          await gate.promise;
        }
        return store.database.write(statements);
      },
    };
    journal = createSqlJournal({ database, ids, clock });
    await journal.create(8);
  });
  afterEach(async () => {
    await store.database.close();
    await store.remove();
  });

  /** Commits a record to each of these logs. */
  const commitTo = async (...logIds: number[]) => {
    isGated = false;
    const heads = [];
    for (const logId of logIds) heads.push(await take(journal, logId));
    isGated = true;
    return heads.map((head) => () => journal.commit(head, messageRecord(fresh("session"), 1)));
  };
  const pass = async (...passing: number[]) => {
    for (const at of passing) gates[at]!.resolve();
    await eventLoopTurns();
  };

  test("hold all that comes while one is under way, and one is under way at a time", async () => {
    const [first, second, third] = await commitTo(0, 1, 2);
    const stored: Promise<CommitResult>[] = [first!()];
    await eventLoopTurns();
    stored.push(second!(), third!());
    await eventLoopTurns();
    expect(gates).toHaveLength(1);
    await pass(0);
    expect(gates).toHaveLength(2);
    await pass(1);
    for (const each of await Promise.all(stored)) headOf(each);
    expect(clock.timers).toBe(0);
  });

  test("tell an owner when its record would be stored at once", async () => {
    const [first] = await commitTo(0);
    expect(journal.whenFree!()).toBeUndefined();
    const stored = first!();
    await eventLoopTurns();
    let isFree = false;
    void journal.whenFree!()!.then(() => (isFree = true));
    await eventLoopTurns();
    expect(isFree).toBe(false);
    await pass(0);
    expect(isFree).toBe(true);
    expect(journal.whenFree!()).toBeUndefined();
    headOf(await stored);
  });

  test("don't wait for one whose answer takes long", async () => {
    const [slow, other] = await commitTo(0, 1);
    const late = slow!();
    await eventLoopTurns();
    const stored = other!();
    await clock.advance(999);
    expect(gates).toHaveLength(1);
    const free = journal.whenFree!();
    await clock.advance(1);
    expect(gates).toHaveLength(2);
    await pass(1);
    headOf(await stored);
    await free;
    expect(journal.whenFree!()).toBeUndefined();
    await pass(0);
    headOf(await late);
  });
});
