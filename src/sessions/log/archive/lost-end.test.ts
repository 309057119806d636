import { beforeEach, describe, expect, test } from "vitest";
import {
  type MovableClock,
  movableClock,
  settledBy,
} from "../../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../../base/errors.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { type Logger, silentLogger } from "../../../base/log.ts";
import { seededRandom } from "../../../base/random.ts";
import { memoryKind } from "../../../store/contract/kinds.ts";
import type { Database, Row } from "../../../store/database.ts";
import { migrate } from "../../../store/migrate.ts";
import { sql, table } from "../../../store/sql.ts";
import {
  busyRecord,
  entry,
  header,
  headOf,
  messageRecord,
  record,
  take,
} from "../../contract/journal-harness.ts";
import {
  noStreamTroubles,
  type SimulatedStreams,
  simulateStreams,
} from "../../contract/simulated-streams.ts";
import { createStreamLog } from "../jetstream/log.ts";
import { streamName } from "../jetstream/streams.ts";
import type { Head, LogRecord } from "../journal.ts";
import { type ArchivedJournal, createArchivedJournal } from "./journal.ts";
import { findBroken, rebase } from "./rebase.ts";
import { placeOnStreams } from "../place.ts";

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
let maxLogBytes: number;

beforeEach(async () => {
  clock = movableClock();
  servers = simulateStreams({ clock, random });
  ({ database: rows } = await memoryKind.open());
  await migrate(rows);
  await placeOnStreams(rows);
  isAway = false;
  isAnswerLost = false;
  errors = [];
  maxLogBytes = deployment.maxLogBytes;
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

function connect() {
  const error: Logger["error"] = (_fields, message) => void errors.push(message);
  const parts = { clock, random, ids: uuidv7(clock, random), log: { ...silentLogger, error } };
  const engine = servers.connect();
  const stream = createStreamLog({
    ...parts,
    engine,
    deployment: { ...deployment, maxLogBytes },
    maxRecordBytes: 100_000,
  });
  return { ...parts, stream, database: database() };
}

function open(maxHeldBytes?: number): ArchivedJournal {
  return createArchivedJournal({ ...connect(), maxHeldBytes });
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

const settled = <Value>(call: Promise<Value>) => settledBy(clock, call);

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

describe("an owner that doesn't know that it isn't one any more", () => {
  test("S8: reads nothing by itself once it has sent its release", async () => {
    const { journal, owned } = await owner();
    await owned.commit(messageRecord("s", 1));
    servers.next = "after";
    const releasing = journal.release("pod-1", [owned.head]);
    const heir = await own(open(), "pod-2");
    await heir.commit(messageRecord("s", 2));
    // The heir doesn't tell it what it has.
    const reading = settled(journal.entries("s", { after: 0, limit: 100 }));
    await expect(reading).rejects.toMatchObject({ code: "store_unavailable" });
    await settled(releasing);
  });

  test("loses its log where the archive has what its successor has stored", async () => {
    const { journal, owned } = await owner();
    await owned.commit(messageRecord("s", 1));
    await journal.flush();
    await settled(journal.release("pod-1", [owned.head]));
    const paused = await own(open(), "pod-2");
    const next = open();
    const heir = await own(next, "pod-3");
    await heir.commit(messageRecord("s", 2));
    await next.flush();
    expect(await paused.isFenced(messageRecord("s", 2))).toBe(true);
  });
});

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

  test("S2: keeps it where no new stream can be made, and hands the log over once one can", async () => {
    const { journal, owned } = await owner();
    for (const seq of [1, 2, 3]) await owned.commit(messageRecord("s", seq));
    setBack(owned.head, 2);
    servers.refusal = { type: "refused", code: 10_047, why: "no storage is left" };
    const away = { code: "store_unavailable" };
    await expect(settled(journal.release("pod-1", [owned.head]))).rejects.toMatchObject(away);
    expect(journal.kept!()).toEqual([owned.head]);
    // This pod doesn't forget it by taking the log once more either.
    await expect(own(journal)).rejects.toMatchObject(away);
    expect(journal.kept!()).toEqual([owned.head]);
    servers.refusal = undefined;
    journal.start();
    await clock.advance(2_000);
    await settled(journal.stop());
    expect(journal.kept!()).toEqual([]);
    const next = open();
    await own(next, "pod-2");
    expect(await readSeqs(next)).toEqual([1, 2, 3]);
  });

  test("S8: reads nothing of the log for an archive that is away, which lacks what was acked", async () => {
    const { journal, owned } = await owner();
    for (const seq of [1, 2]) await owned.commit(messageRecord("s", seq));
    await journal.flush();
    setBack(owned.head, 1);
    servers.refusal = { type: "refused", code: 10_047, why: "no storage is left" };
    // What says that the stream is left has the place of what was lost.
    const away = { code: "store_unavailable" };
    await expect(settled(journal.release("pod-1", [owned.head]))).rejects.toMatchObject(away);
    isAway = true;
    const reading = settled(journal.entries("s", { after: 0, limit: 100 }));
    await expect(reading).rejects.toMatchObject(away);
    isAway = false;
    servers.refusal = undefined;
    await settled(journal.release("pod-1", journal.kept!()));
    const next = open();
    await own(next, "pod-2");
    expect(await readSeqs(next)).toEqual([1, 2]);
  });

  test("keeps its new stream, though a server that is behind names the one before", async () => {
    const { journal, owned } = await owner();
    await owned.commit(messageRecord("s", 1));
    setBack(owned.head, 1);
    expect(await owned.isFenced(messageRecord("s", 2))).toBe(true);
    const again = await own(journal);
    servers.troubles = { ...noStreamTroubles, behind: 1 };
    for (let count = 0; count < 10; count++) await settled(journal.heads()).catch(() => {});
    servers.troubles = noStreamTroubles;
    await again.commit(messageRecord("s", 2));
    expect(await readSeqs(journal)).toEqual([1, 2]);
  });

  test("S2: keeps a log of which it isn't known whether servers have its release", async () => {
    const { journal, owned } = await owner();
    for (const seq of [1, 2]) await owned.commit(messageRecord("s", seq));
    servers.troubles = { ...noStreamTroubles, before: 1 };
    await expect(settled(journal.release("pod-1", [owned.head]))).rejects.toMatchObject({
      code: "unknown_outcome",
    });
    expect(journal.kept!()).toEqual([owned.head]);
    setBack(owned.head, 1);
    servers.troubles = noStreamTroubles;
    await settled(journal.release("pod-1", journal.kept!()));
    expect(journal.kept!()).toEqual([]);
    const next = open();
    await own(next, "pod-2");
    expect(await readSeqs(next)).toEqual([1, 2]);
  });

  test("has a place for it in the new stream, however full the log was", async () => {
    maxLogBytes = 20_000;
    const { journal, owned } = await owner();
    let seq = 0;
    const isTaken = () =>
      owned.commit(messageRecord("s", seq + 1)).then(
        () => true,
        () => false,
      );
    // How full a log is, is estimated between two looks at it.
    for (let looks = 0; looks < 8; looks++) {
      while (await isTaken()) seq++;
      await clock.advance(1_100);
    }
    setBack(owned.head, 2);
    await settled(journal.release("pod-1", [owned.head]));
    const next = open();
    await own(next, "pod-2");
    expect(await readSeqs(next)).toHaveLength(seq);
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

describe("a log whose database was set back further than the log reaches", () => {
  const tool = () => ({ ...connect(), owner: { podId: "operator", host: null } });
  const sized = (seq: number): LogRecord => {
    const parts = [{ type: "text", text: "a".repeat(10_000) }];
    return record({
      entries: [entry("s", seq, { parts })],
      headers: [header("s", { lastSeq: seq })],
    });
  };
  const asideOffsets = async (): Promise<number[]> =>
    (
      await rows.read(
        sql`select log_offset, body from ${table("archive_aside")} order by log_offset`,
      )
    ).map((row) => JSON.parse(row["body"] as string).entries[0].seq as number);

  /** The database has one message of a session, the log has its last ones, and those between are nowhere. */
  async function lose(): Promise<{ journal: ArchivedJournal; head: Head }> {
    const { journal, owned } = await owner();
    await owned.commit(messageRecord("s", 1));
    await owned.commit(busyRecord("at-work", 1));
    await journal.flush();
    const [before] = await rows.read(sql`select * from ${table("log_watermark")}`);
    journal.start();
    for (let seq = 2; seq <= 60; seq++) {
      await owned.commit(sized(seq));
      await clock.advance(1_100);
    }
    expect(journal.state().trims).toBeGreaterThan(0);
    await journal.stop();
    await rows.write([
      sql`update ${table("log_watermark")}
        set log_offset = ${before!["log_offset"]}, record_id = ${before!["record_id"]},
          chain = ${before!["chain"]}`,
      sql`delete from ${table("message")} where seq > 1`,
      sql`update ${table("session")} set header = ${JSON.stringify(header("s", { lastSeq: 1 }))},
        last_offset = ${before!["log_offset"]}, last_seq = 1 where session_id = 's'`,
    ]);
    return { journal, head: owned.head };
  }

  test("goes on with what the database has once it is rebased, and the rest is set aside", async () => {
    const { head } = await lose();
    const broken = { logId: 0, archived: 3, through: expect.any(Number), why: "set_back" };
    expect(await settled(findBroken(tool()))).toEqual([broken]);
    const done = await settled(rebase(0, tool()));
    expect(done).toMatchObject(broken);
    const kept = await asideOffsets();
    expect(kept).toHaveLength(done!.aside);
    expect(kept.at(-1)).toBe(60);
    expect(kept[0]).toBeGreaterThan(2);

    const next = open();
    const taken = await own(next, "pod-2");
    expect(taken.head.incarnation).not.toBe(head.incarnation);
    expect(taken.busy.map(({ sessionId }) => sessionId)).toEqual(["at-work"]);
    expect(await readSeqs(next)).toEqual([1]);
    await taken.commit(messageRecord("s", 2));
    await next.flush();
    expect(await archivedSeqs()).toEqual([1, 2]);
    expect(await settled(findBroken(tool()))).toEqual([]);
    expect(await settled(rebase(0, tool()))).toBeUndefined();
  });

  test("is rebased while pods try to serve it, and by one that is started again", async () => {
    await lose();
    const stuck = open();
    const head = await take(stuck, 0, "pod-2");
    await expect(settled(stuck.recover(head))).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("flotilla cluster rebase --log 0") as string,
    });
    // The first one is cut off between what it has set aside and the new stream.
    const cut = tool();
    const stopped = { ...cut.stream, renew: () => Promise.reject(new Error("killed")) };
    await expect(settled(rebase(0, { ...cut, stream: stopped }))).rejects.toThrow("killed");
    const before = await asideOffsets();
    const done = await settled(rebase(0, tool()));
    expect(done!.aside).toBe(before.length);
    expect(await asideOffsets()).toEqual(before);
    // It waits for a while before it takes the log again.
    await clock.advance(6_000);
    await own(stuck, "pod-2");
    expect(await readSeqs(stuck)).toEqual([1]);
  });

  test("isn't rebased where the log or a restored database has what is missing", async () => {
    const { journal, owned } = await owner();
    for (const seq of [1, 2, 3]) await owned.commit(messageRecord("s", seq));
    expect(await settled(rebase(0, tool()))).toBeUndefined();
    await journal.flush();
    expect(await settled(findBroken(tool()))).toEqual([]);
    expect(await owned.isFenced(messageRecord("s", 4))).toBe(false);
    await expect(settled(rebase(7, tool()))).rejects.toMatchObject({ code: "not_found" });
  });

  test("is rebased where all servers came back empty, behind what the database has", async () => {
    const { journal, owned } = await owner();
    for (const seq of [1, 2, 3]) await owned.commit(messageRecord("s", seq));
    await journal.flush();
    servers = simulateStreams({ clock, random });
    const next = open();
    await next.create(1);
    await expect(own(next, "pod-2")).rejects.toMatchObject({ code: "unavailable" });
    expect(await settled(rebase(0, tool()))).toMatchObject({ why: "different", aside: 0 });
    await clock.advance(6_000);
    const taken = await own(next, "pod-2");
    await taken.commit(messageRecord("s", 4));
    await next.flush();
    expect(await archivedSeqs()).toEqual([1, 2, 3, 4]);
  });

  test("and that has nothing of its archive, is rebased too", async () => {
    await lose();
    await rows.write([
      sql`delete from ${table("log_watermark")}`,
      sql`delete from ${table("message")}`,
      sql`delete from ${table("session")}`,
    ]);
    expect(await settled(rebase(0, tool()))).toMatchObject({ why: "missing", archived: 0 });
    const next = open();
    const taken = await own(next, "pod-2");
    await taken.commit(messageRecord("s", 1));
    await next.flush();
    expect(await archivedSeqs()).toEqual([1]);
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
