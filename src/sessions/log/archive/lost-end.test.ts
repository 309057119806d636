import { beforeEach, describe, expect, test } from "vitest";
import { type MovableClock, movableClock } from "../../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../../base/errors.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { type Logger, silentLogger } from "../../../base/log.ts";
import { seededRandom } from "../../../base/random.ts";
import { memoryKind } from "../../../store/contract/kinds.ts";
import type { Database, Row } from "../../../store/database.ts";
import { migrate } from "../../../store/migrate.ts";
import { sql, table } from "../../../store/sql.ts";
import { busyRecord, headOf, messageRecord, take } from "../../contract/journal-harness.ts";
import { type SimulatedStreams, simulateStreams } from "../../contract/simulated-streams.ts";
import { createStreamLog } from "../jetstream/log.ts";
import { streamName } from "../jetstream/streams.ts";
import type { Head, LogRecord } from "../journal.ts";
import { type ArchivedJournal, createArchivedJournal } from "./journal.ts";

const random = seededRandom(9);
const deployment = {
  namespace: "test",
  clusterId: "c1",
  replicas: 3,
  maxLogBytes: 1_000_000,
} as const;

let clock: MovableClock;
let servers: SimulatedStreams;
let rows: Database;
let isAway: boolean;
/** Whether the next flush is stored and its answer lost. */
let isAnswerLost: boolean;
let errors: string[];

beforeEach(async () => {
  clock = movableClock();
  servers = simulateStreams({ clock, random });
  ({ database: rows } = await memoryKind.open());
  await migrate(rows);
  isAway = false;
  isAnswerLost = false;
  errors = [];
});

const database = (): Database => ({
  ...rows,
  async read(statement, options) {
    if (isAway) throw new FlotillaError("store_unavailable", "the database is away");
    return rows.read(statement, options);
  },
  async write(statements) {
    if (isAway) throw new FlotillaError("store_unavailable", "the database is away");
    const stored: Row[][] = await rows.write(statements);
    if (!isAnswerLost) return stored;
    [isAnswerLost, isAway] = [false, true];
    throw new FlotillaError("unknown_outcome", "the answer was lost");
  },
});

function open(maxHeldBytes?: number): ArchivedJournal {
  const error: Logger["error"] = (_fields, message) => void errors.push(message);
  const parts = { clock, random, ids: uuidv7(clock, random), log: { ...silentLogger, error } };
  const engine = servers.connect();
  const stream = createStreamLog({ ...parts, engine, deployment, maxRecordBytes: 100_000 });
  return createArchivedJournal({ ...parts, stream, database: database(), maxHeldBytes });
}

/** Takes the only log, and gives what its owner needs. */
async function own(journal: ArchivedJournal, podId = "pod-1") {
  let head = await take(journal, 0, podId);
  const { busy } = await settled(journal.recover(head));
  return {
    busy,
    commit: async (next: LogRecord) =>
      void (head = headOf(await settled(journal.commit(head, next)))),
    /** A record that the log doesn't take any more, because it goes on in another stream. */
    isFenced: async (next: LogRecord) =>
      (await settled(journal.commit(head, next))).type === "fenced",
    get head(): Head {
      return head;
    },
  };
}

async function owner(maxHeldBytes?: number) {
  const journal = open(maxHeldBytes);
  await journal.create(1);
  return { journal, owned: await own(journal) };
}

async function settled<Value>(call: Promise<Value>): Promise<Value> {
  let hasEnded = false;
  const ending = call.finally(() => (hasEnded = true));
  ending.catch(() => {});
  while (!hasEnded) await clock.advance(50);
  return ending;
}

/** The servers have lost the last messages of a log. */
function setBack(head: Head, messages: number): void {
  const name = streamName(deployment, { ...head, firstSequence: 1 });
  servers.change(name, (all) => void all.splice(-messages));
}

const readSeqs = async (journal: ArchivedJournal): Promise<number[]> =>
  (await settled(journal.entries("s", { after: 0, limit: 100 }))).map(({ seq }) => seq);
const archivedSeqs = async (): Promise<number[]> =>
  (
    await rows.read(sql`select seq from ${table("message")} where session_id = ${"s"} order by seq`)
  ).map((row) => Number(row["seq"]));

describe("an owner whose servers have lost what they had acked", () => {
  test("S2: stores it again in a new stream, and archives everything once", async () => {
    const { journal, owned } = await owner();
    await owned.commit(messageRecord("s", 1));
    await journal.flush();
    for (const seq of [2, 3]) await owned.commit(messageRecord("s", seq));
    setBack(owned.head, 2);
    expect(await owned.isFenced(messageRecord("s", 4))).toBe(true);
    const again = await own(journal);
    expect(again.head.incarnation).not.toBe(owned.head.incarnation);
    expect(await readSeqs(journal)).toEqual([1, 2, 3]);
    await again.commit(messageRecord("s", 4));
    await journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2, 3, 4]);
    expect(await rows.read(sql`select incarnation from ${table("log_watermark")}`)).toEqual([
      { incarnation: again.head.incarnation },
    ]);
    expect(errors).toHaveLength(1);
  });

  test("S10: does so without the database, however often, which gets all of it when it is back", async () => {
    const { journal, owned } = await owner();
    await owned.commit(messageRecord("s", 1));
    await journal.flush();
    isAway = true;
    let last = owned;
    for (const seq of [2, 4, 6]) {
      for (const each of [seq, seq + 1]) await last.commit(messageRecord("s", each));
      setBack(last.head, 1);
      expect(await last.isFenced(messageRecord("s", seq + 2))).toBe(true);
      last = await own(journal);
    }
    isAway = false;
    expect(await readSeqs(journal)).toEqual([1, 2, 3, 4, 5, 6, 7]);
    await journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  test("O7: knows that the database has some of it already, though it never heard so", async () => {
    const { journal, owned } = await owner();
    await owned.commit(messageRecord("s", 1));
    await journal.flush();
    for (const seq of [2, 3]) await owned.commit(messageRecord("s", seq));
    isAnswerLost = true;
    await journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2, 3]);
    await owned.commit(messageRecord("s", 4));
    setBack(owned.head, 3);
    expect(await owned.isFenced(messageRecord("s", 5))).toBe(true);
    const again = await own(journal);
    isAway = false;
    await journal.flush();
    await again.commit(messageRecord("s", 5));
    await journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2, 3, 4, 5]);
    expect(await readSeqs(journal)).toEqual([1, 2, 3, 4, 5]);
  });

  test("notices it by a mark, where nothing is appended", async () => {
    const { journal, owned } = await owner();
    for (const seq of [1, 2]) await owned.commit(messageRecord("s", seq));
    await journal.flush();
    setBack(owned.head, 2);
    await clock.advance(3_000);
    expect(await settled(journal.prove!(owned.head, "p"))).toEqual({ type: "fenced" });
    await own(journal);
    expect(await readSeqs(journal)).toEqual([1, 2]);
  });

  test("W1: leaves no session behind that is at work, archived or not", async () => {
    const { journal, owned } = await owner();
    await owned.commit(busyRecord("old", 1));
    await journal.flush();
    await owned.commit(busyRecord("new", 1));
    setBack(owned.head, 2);
    expect(await owned.isFenced(messageRecord("s", 1))).toBe(true);
    const { busy } = await own(journal);
    expect(busy.map(({ sessionId }) => sessionId).toSorted()).toEqual(["new", "old"]);
  });

  test("keeps it when the log is handed over", async () => {
    const { journal, owned } = await owner();
    for (const seq of [1, 2, 3]) await owned.commit(messageRecord("s", seq));
    setBack(owned.head, 2);
    await settled(journal.release("pod-1", [owned.head]));
    const next = open();
    await own(next, "pod-2");
    expect(await readSeqs(next)).toEqual([1, 2, 3]);
  });

  test("goes on with what there is, loudly, if it was too much for memory", async () => {
    const { journal, owned } = await owner(400);
    for (const seq of [1, 2, 3, 4, 5, 6]) await owned.commit(messageRecord("s", seq));
    setBack(owned.head, 2);
    expect(await owned.isFenced(messageRecord("s", 7))).toBe(true);
    await own(journal);
    expect(await readSeqs(journal)).toEqual([1, 2, 3, 4]);
    expect(errors[0]).toContain("are lost");
  });
});

describe("a log without an owner whose servers have lost what they had acked", () => {
  test("goes on behind what the database has, in a new stream, loudly", async () => {
    const { journal, owned } = await owner();
    await owned.commit(busyRecord("at-work", 1));
    for (const seq of [1, 2, 3]) await owned.commit(messageRecord("s", seq));
    await journal.flush();
    setBack(owned.head, 3);
    const next = open();
    await expect(own(next, "pod-2")).rejects.toMatchObject({ code: "store_unavailable" });
    expect(errors.at(-1)).toContain("goes on with what the database has");
    const taken = await own(next, "pod-2");
    expect(taken.busy.map(({ sessionId }) => sessionId)).toEqual(["at-work"]);
    expect(taken.head.offset).toBeGreaterThan(owned.head.offset);
    await taken.commit(messageRecord("s", 4));
    expect(await readSeqs(next)).toEqual([1, 2, 3, 4]);
    await next.flush();
    expect(await archivedSeqs()).toEqual([1, 2, 3, 4]);
  });

  test("O7: isn't served once it has other records than the database, with a sentence", async () => {
    const { journal, owned } = await owner();
    for (const seq of [1, 2, 3]) await owned.commit(messageRecord("s", seq));
    await journal.flush();
    setBack(owned.head, 2);
    isAway = true;
    const next = open();
    const taken = await own(next, "pod-2");
    await taken.commit(messageRecord("t", 1));
    isAway = false;
    await next.flush();
    await expect(settled(next.entries("s", { after: 0, limit: 10 }))).rejects.toMatchObject({
      code: "store_unavailable",
      message: expect.stringContaining("the database has") as string,
    });
    expect(await archivedSeqs()).toEqual([1, 2, 3]);
  });
});

describe("a log whose messages don't follow from each other", () => {
  test("O7: isn't served, is named, and takes no message more for a while", async () => {
    const { owned } = await owner();
    for (const seq of [1, 2, 3]) await owned.commit(messageRecord("s", seq));
    const name = streamName(deployment, { ...owned.head, firstSequence: 1 });
    servers.change(name, (all) => {
      all[2] = { ...all[2]!, body: Buffer.from("{}") };
    });
    const next = open();
    const refused = {
      code: "store_corrupt",
      message: expect.stringContaining("the chain ends before 3") as string,
    };
    await expect(own(next, "pod-2")).rejects.toMatchObject(refused);
    const stored = servers.stored(name).length;
    for (let tries = 0; tries < 3; tries++) {
      await expect(take(next, 0, "pod-2")).rejects.toMatchObject(refused);
    }
    expect(servers.stored(name)).toHaveLength(stored);
    await clock.advance(5_000);
    await take(next, 0, "pod-2");
    expect(servers.stored(name)).toHaveLength(stored + 1);
  });
});
