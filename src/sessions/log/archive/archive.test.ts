import { beforeEach, describe, expect, test, vi } from "vitest";
import {
  type MovableClock,
  movableClock,
  settledBy,
  until,
} from "../../../base/contract/movable-clock.ts";
import { sleep } from "../../../base/clock.ts";
import { FlotillaError } from "../../../base/errors.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { type Logger, silentLogger } from "../../../base/log.ts";
import { seededRandom } from "../../../base/random.ts";
import { createMemoryBus, type MemoryBus } from "../../../bus/memory-bus.ts";
import { memoryKind } from "../../../store/contract/kinds.ts";
import type { Database, Row } from "../../../store/database.ts";
import { migrate } from "../../../store/migrate.ts";
import { sql, type Statement, table, type TableName } from "../../../store/sql.ts";
import {
  busyRecord,
  entry,
  everything,
  header,
  headOf,
  messageRecord,
  record,
  startedTask,
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
import { createSqlReads } from "../sql-journal.ts";
import {
  type ArchivedJournal,
  type ArchivedJournalParts,
  createArchivedJournal,
} from "./journal.ts";
import { logPlaceOf, placeOnStreams, returnToDatabase } from "../place.ts";

const random = seededRandom(7);
const deployment = {
  namespace: "test",
  clusterId: "c1",
  replicas: 3,
} as const;
const usualBytes = 1_000_000;

/** What a flush changes. */
const archivedTables = ["log_watermark", "session", "session_user", "message", "turn"] as const;

/** What becomes of the next writes. */
type Trouble = "away" | "after" | "before" | "late" | "refused" | undefined;

let maxLogBytes: number;
let clock: MovableClock;
let servers: SimulatedStreams;
let bus: MemoryBus;
let sound: Database;
let trouble: Trouble;
let late: (() => Promise<Row[][]>)[];
let writes: number;
let warnings: string[];

beforeEach(async () => {
  maxLogBytes = usualBytes;
  clock = movableClock();
  servers = simulateStreams({ clock, random });
  bus = createMemoryBus();
  ({ database: sound } = await memoryKind.open());
  await migrate(sound);
  await placeOnStreams(sound);
  trouble = undefined;
  late = [];
  writes = 0;
  warnings = [];
});

const database = (): Database => ({
  ...sound,
  async read(statement, options) {
    if (trouble === "away") throw new FlotillaError("store_unavailable", "the database is away");
    return sound.read(statement, options);
  },
  async write(statements) {
    writes++;
    const { length } = statements;
    if (trouble === "away") throw new FlotillaError("store_unavailable", "the database is away");
    if (trouble === undefined || length < 2) return sound.write(statements);
    const now = trouble;
    trouble = undefined;
    if (now === "refused") throw new FlotillaError("internal", "the database refuses it");
    if (now === "after") await sound.write(statements);
    if (now === "late") late.push(() => sound.write(statements));
    throw new FlotillaError("unknown_outcome", "the answer was lost");
  },
});

/** The database as a pod sees it that doesn't reach it, while others do. */
const unreached = (): Database => ({
  ...sound,
  async read() {
    throw new FlotillaError("store_unavailable", "the database is away");
  },
});

function open(podId: string, changes: Partial<ArchivedJournalParts> = {}): ArchivedJournal {
  const warn: Logger["warn"] = (_fields, message) => void warnings.push(message);
  const stream = createStreamLog({
    engine: servers.connect(),
    deployment: { ...deployment, maxLogBytes },
    clock,
    random,
    ids: uuidv7(clock, random),
    log: silentLogger,
    maxRecordBytes: 100_000,
  });
  return createArchivedJournal({
    stream,
    database: database(),
    bus: bus.connect(podId, { clock }),
    clock,
    random,
    ids: uuidv7(clock, random),
    log: { ...silentLogger, warn },
    ...changes,
  });
}

/** A pod that owns the only log. */
async function owner(podId = "pod-1", changes: Partial<ArchivedJournalParts> = {}) {
  const journal = open(podId, changes);
  await journal.create(1);
  const taken = await take(journal, 0, podId);
  const recovered = await journal.recover(taken);
  let head = taken;
  const commit = async (next: LogRecord): Promise<Head> => {
    head = headOf(await journal.commit(head, next));
    return head;
  };
  return {
    journal,
    recovered,
    commit,
    get head() {
      return head;
    },
  };
}

const settled = <Value>(call: Promise<Value>) => settledBy(clock, call);

const rows = (statement: Statement) => sound.read(statement);
const all = (name: TableName) => rows(sql`select * from ${table(name)}`);
const standing = async () => Number((await all("log_watermark"))[0]!["log_offset"]);
const archivedSeqs = async (sessionId: string) =>
  (await createSqlReads({ database: sound }).entries(sessionId, everything)).map(({ seq }) => seq);
const readSeqs = async (journal: ArchivedJournal, sessionId: string) =>
  (await settled(journal.entries(sessionId, everything))).map(({ seq }) => seq);
const storedIn = (head: Head) =>
  servers.stored(streamName({ ...deployment, maxLogBytes }, { ...head, firstSequence: 1 }));

describe("a record", () => {
  test("S8: is acknowledged without the database, read on every pod at once, and archived soon", async () => {
    const { journal, commit } = await owner();
    const other = open("pod-2");
    const before = writes;
    await commit(messageRecord("s", 1, 3));
    expect(writes).toBe(before);
    expect(await readSeqs(journal, "s")).toEqual([1, 2, 3]);
    expect(await readSeqs(other, "s")).toEqual([1, 2, 3]);
    expect(await archivedSeqs("s")).toEqual([]);
    expect(journal.state()).toMatchObject({ unarchivedEntries: 3, isAway: false });
    journal.start();
    await clock.advance(200);
    expect(await archivedSeqs("s")).toEqual([1, 2, 3]);
    expect(await readSeqs(other, "s")).toEqual([1, 2, 3]);
    expect(journal.state()).toMatchObject({ unarchivedEntries: 0, unarchivedBytes: 0, lagMs: 0 });
    await journal.stop();
  });

  test("many are archived together, and never more than a transaction takes", async () => {
    const { journal, commit } = await owner();
    for (let at = 0; at < 30; at++) await commit(messageRecord("s", at * 50 + 1, at * 50 + 50));
    const before = writes;
    await journal.flush();
    expect(await archivedSeqs("s")).toHaveLength(1_000);
    await journal.flush();
    expect(await archivedSeqs("s")).toHaveLength(1_500);
    expect(writes).toBe(before + 2);
  });

  test("with what its users have read and its metadata, tells both before they are archived", async () => {
    const { journal, commit } = await owner();
    const reads = [
      { sessionId: "s", user: "ada", seq: 1 },
      { sessionId: "s", user: "ada", seq: 3 },
    ];
    const metadata = [{ sessionId: "s", metadata: '{"a":1}' }];
    await commit(record({ headers: [header("s", { lastSeq: 3 })], reads, metadata }));
    const facts = { metadata: '{"a":1}', reads: [["ada", 3]] };
    expect(await journal.unarchivedFacts("s")).toEqual(facts);
    expect(await settled(open("pod-2").unarchivedFacts("s"))).toEqual(facts);
    await journal.flush();
    expect(await journal.unarchivedFacts("s")).toEqual({ reads: [] });
  });

  test("that isn't in memory any more is read from the log, and archived from there", async () => {
    const { journal, commit } = await owner("pod-1", { maxHeldBytes: 0 });
    for (const seq of [1, 2, 3]) await commit(messageRecord("s", seq));
    expect(await readSeqs(journal, "s")).toEqual([1, 2, 3]);
    await journal.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2, 3]);
  });
});

describe("a database that is away", () => {
  test("S10: takes no append with it, and gets everything when it is back", async () => {
    const { journal, commit } = await owner();
    journal.start();
    await commit(messageRecord("s", 1));
    await clock.advance(300);
    trouble = "away";
    for (let seq = 2; seq <= 40; seq++) {
      await commit(messageRecord("s", seq));
      await clock.advance(250);
    }
    expect(await archivedSeqs("s")).toEqual([1]);
    expect(journal.state()).toMatchObject({ isAway: true, unarchivedEntries: 39 });
    expect(journal.state().lagMs).toBeGreaterThan(9_000);
    expect(warnings).toEqual(["the archive doesn't take records, retrying"]);
    trouble = undefined;
    await clock.advance(6_000);
    expect(await archivedSeqs("s")).toHaveLength(40);
    expect(journal.state()).toMatchObject({ isAway: false, unarchivedEntries: 0 });
    await journal.stop();
  });

  test("is away for all logs of a pod, also where only one of them has something to store", async () => {
    const journal = open("pod-1");
    await journal.create(2);
    const idle = await take(journal, 0, "pod-1");
    await journal.recover(idle);
    const busy = await take(journal, 1, "pod-1");
    await journal.recover(busy);
    journal.start();
    await clock.advance(300);
    trouble = "away";
    await journal.commit(busy, messageRecord("s", 1));
    for (let seconds = 0; seconds < 30; seconds++) {
      await clock.advance(1_000);
      expect(journal.state().isAway).toBe(true);
    }
    expect(warnings).toEqual(["the archive doesn't take records, retrying"]);
    trouble = undefined;
    await clock.advance(6_000);
    expect(journal.state()).toMatchObject({ isAway: false, unarchivedEntries: 0 });
    await journal.stop();
  });

  test.each([
    ["can't be read", Buffer.from("{}")],
    ["doesn't answer", undefined],
  ])("isn't away where one log %s: the others are archived", async (_, body) => {
    const journal = open("pod-1", { maxHeldBytes: 0 });
    await journal.create(2);
    const heads: Head[] = [];
    for (const logId of [0, 1]) {
      const taken = await take(journal, logId, "pod-1");
      await journal.recover(taken);
      heads.push(taken);
    }
    journal.start();
    await clock.advance(300);
    await journal.commit(heads[0]!, messageRecord("lost", 1));
    // What isn't in memory is read from the log again.
    const name = streamName({ ...deployment, maxLogBytes }, { ...heads[0]!, firstSequence: 1 });
    const kept = servers.stored(name).at(-1)!;
    servers.change(name, (all) => {
      all.pop();
      if (body) all.push({ ...kept, body });
    });
    const other = headOf(await journal.commit(heads[1]!, messageRecord("s", 1)));
    await clock.advance(10_000);
    expect(await archivedSeqs("s")).toEqual([1]);
    expect(journal.state()).toMatchObject({ isAway: false, unarchivedEntries: 1 });
    expect(warnings).toEqual(["a session log isn't archived, retrying"]);
    await journal.commit(other, messageRecord("s", 2));
    await clock.advance(1_000);
    expect(await archivedSeqs("s")).toEqual([1, 2]);
    servers.change(name, (all) => void all.splice(kept.sequence - 1, 1, kept));
    await clock.advance(10_000);
    expect(journal.state()).toMatchObject({ isAway: false, unarchivedEntries: 0 });
    await journal.stop();
  });

  test("is known to be away, and to be back, by a pod that has no log", async () => {
    trouble = "away";
    const journal = open("pod-1", { isAway: true });
    journal.start();
    await clock.advance(60_000);
    expect(journal.state().isAway).toBe(true);
    trouble = undefined;
    await clock.advance(6_000);
    expect(journal.state().isAway).toBe(false);
    const before = writes;
    await clock.advance(10_000);
    expect([journal.state().isAway, writes]).toEqual([false, before]);
    await journal.stop();
  });

  test("at a take keeps no pod from it, and the next owner archives what the last one couldn't", async () => {
    const first = await owner("pod-1");
    trouble = "away";
    await first.commit(busyRecord("s", 1));
    const second = open("pod-2");
    const taken = await take(second, 0, "pod-2");
    const recovered = await settled(second.recover(taken));
    expect(recovered.busy.map(({ sessionId }) => sessionId)).toEqual(["s"]);
    expect(await second.header("s")).toMatchObject({ lastSeq: 1 });
    headOf(await second.commit(taken, busyRecord("s", 2)));
    trouble = undefined;
    await second.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2]);
  });

  test("S3: an id that is known is a duplicate, and one of an unknown session counts as new", async () => {
    const { journal, commit } = await owner();
    await commit(messageRecord("s", 1, 2));
    await journal.flush();
    trouble = "away";
    const again = record({
      entries: [entry("s", 3, { clientId: "s/1" })],
      headers: [header("s", { lastSeq: 3 })],
    });
    const found = await journal.commit(await currentHead(journal), again);
    expect(found).toEqual({
      type: "duplicate",
      found: [{ sessionId: "s", clientId: "s/1", seq: 1 }],
    });
    const unknown = record({
      entries: [entry("other", 7, { clientId: "x" })],
      headers: [header("other", { lastSeq: 7 })],
    });
    headOf(await settled(journal.commit(await currentHead(journal), unknown)));
  });
});

describe("a session of more entries than are kept", () => {
  test("S3: finds an old id in the archive, the last ones without it, and all that the log has", async () => {
    maxLogBytes = 10 * usualBytes;
    const first = await owner("pod-1");
    for (let from = 1; from <= 4_200; from += 300) {
      await first.commit(messageRecord("s", from, from + 299));
    }
    while (first.journal.state().unarchivedEntries > 0) await first.journal.flush();
    const next = open("pod-2");
    const taken = await take(next, 0, "pod-2");
    await next.recover(taken);
    const again = (clientId: string) =>
      record({
        entries: [entry("s", 4_201, { clientId })],
        headers: [header("s", { lastSeq: 4_201 })],
      });
    const found = (seq: number) => ({
      type: "duplicate",
      found: [{ sessionId: "s", clientId: `s/${seq}`, seq }],
    });
    expect(await next.header("s")).toMatchObject({ lastSeq: 4_200 });
    expect(await next.commit(taken, again("s/3"))).toEqual(found(3));
    trouble = "away";
    expect(await next.commit(taken, again("s/4000"))).toEqual(found(4_000));
    // It is older than what is kept in memory, and the database can't be asked.
    expect(await next.commit(taken, again("s/5"))).toEqual(found(5));
  });

  describe("whose database is slow", () => {
    let slowMs: number;
    let asked: number;
    let answered: number;
    let journal: ArchivedJournal;
    let head: Head;
    const sent = (clientId: string) => {
      const seq = head.offset + 10_000;
      return record({
        entries: [entry("s", seq, { clientId })],
        headers: [header("s", { lastSeq: seq })],
      });
    };
    const commit = async (clientId: string): Promise<void> => {
      head = headOf(await journal.commit(head, sent(clientId)));
    };
    /** Ends without the clock being moved, so that nothing of it waits. */
    const commitAtOnce = async (clientId: string): Promise<void> => {
      const beganMs = clock.monotonic();
      await commit(clientId);
      expect(clock.monotonic()).toBe(beganMs);
    };
    beforeEach(async () => {
      maxLogBytes = 10 * usualBytes;
      const first = await owner("pod-1");
      for (let from = 1; from <= 4_200; from += 300) {
        await first.commit(messageRecord("s", from, from + 299));
      }
      while (first.journal.state().unarchivedEntries > 0) await first.journal.flush();
      slowMs = 0;
      asked = answered = 0;
      const slow: Database = {
        ...sound,
        async read(...args) {
          asked++;
          if (slowMs > 0) await sleep(clock, slowMs);
          const rows = await sound.read(...args);
          answered++;
          return rows;
        },
      };
      journal = open("pod-2", { database: slow });
      head = await take(journal, 0, "pod-2");
      await journal.recover(head);
      await journal.header("s");
      await commit("prepared");
    });

    test("waits for it once and shortly, and then for no id, until it answers in time", async () => {
      slowMs = 900;
      const first = commit("a");
      await clock.advance(250);
      await first;
      const before = asked;
      for (let nth = 0; nth < 20; nth++) await commitAtOnce(`b${nth}`);
      // The first one isn't answered yet, and it isn't asked again meanwhile.
      expect(asked).toBe(before);
      await clock.advance(1_000);
      for (let nth = 0; nth < 20; nth++) await commitAtOnce(`c${nth}`);
      expect([asked, answered]).toEqual([before + 1, before]);
      await clock.advance(1_000);
      slowMs = 0;
      await commitAtOnce("d");
      await until("an answer in time", () => answered === before + 2);
      expect(await journal.commit(head, sent("s/3"))).toMatchObject({ type: "duplicate" });
    });

    test("S3: finds what its log still has meanwhile, which is read once", async () => {
      slowMs = 900;
      const first = commit("a");
      await clock.advance(250);
      await first;
      const duplicate = { type: "duplicate", found: [{ clientId: "s/5", seq: 5 }] };
      const replays = vi.spyOn(servers.connect(), "readFrom");
      expect(await journal.commit(head, sent("s/5"))).toMatchObject(duplicate);
      const before = replays.mock.calls.length;
      await clock.advance(3_000);
      await journal.flush();
      expect(await journal.commit(head, sent("s/5"))).toMatchObject(duplicate);
      expect(replays.mock.calls.length).toBe(before);
    });
  });
});

test("S3: an id that another owner has stored and archived is a duplicate as long as the log has it, with the database away", async () => {
  const first = await owner("pod-1");
  first.journal.start();
  await first.commit(messageRecord("s", 1, 2));
  await clock.advance(3_000);
  expect(await archivedSeqs("s")).toEqual([1, 2]);
  const second = open("pod-2");
  const taken = await take(second, 0, "pod-2");
  await settled(second.recover(taken));
  trouble = "away";
  const sent = (seq: number, clientId: string) =>
    record({ entries: [entry("s", seq, { clientId })], headers: [header("s", { lastSeq: seq })] });
  const found = (clientId: string, seq: number) => ({
    type: "duplicate",
    found: [{ sessionId: "s", clientId, seq }],
  });
  expect(await settled(second.commit(taken, sent(3, "s/1")))).toEqual(found("s/1", 1));
  const next = headOf(await settled(second.commit(taken, sent(3, "new"))));
  // It is archived while the database is back for a moment.
  trouble = undefined;
  await second.flush();
  trouble = "away";
  expect(await settled(second.commit(next, sent(4, "new")))).toEqual(found("new", 3));
  await first.journal.stop();
});

test("S3: an id that another owner has stored and archived is a duplicate to one that takes its log back", async () => {
  const first = await owner("pod-1");
  await first.commit(messageRecord("s", 1));
  const second = await owner("pod-2");
  await second.commit(messageRecord("s", 2));
  await second.journal.flush();
  const taken = await take(first.journal, 0, "pod-1");
  await settled(first.journal.recover(taken));
  await first.journal.flush();
  const again = record({
    entries: [entry("s", 3, { clientId: "s/2" })],
    headers: [header("s", { lastSeq: 3 })],
  });
  expect(await settled(first.journal.commit(taken, again))).toEqual({
    type: "duplicate",
    found: [{ sessionId: "s", clientId: "s/2", seq: 2 }],
  });
});

async function currentHead(journal: ArchivedJournal): Promise<Head> {
  return (await journal.heads())[0]!;
}

describe("a flush", () => {
  test.each(["after", "before", "late"] as const)(
    "O2: whose answer is lost %s it was stored is stored once",
    async (when) => {
      const { journal, commit } = await owner();
      await commit(busyRecord("s", 1));
      trouble = when;
      await journal.flush();
      const isStored = when === "after";
      expect(journal.state()).toMatchObject({
        isAway: !isStored,
        unarchivedEntries: isStored ? 0 : 1,
      });
      await commit(messageRecord("s", 2));
      await journal.flush();
      expect(await archivedSeqs("s")).toEqual([1, 2]);
      for (const land of late) expect((await land())[0]).toEqual([]);
      expect(await archivedSeqs("s")).toEqual([1, 2]);
      const after = await all("session");
      expect(after).toMatchObject([{ last_seq: 2 }]);
    },
  );

  test("O7: of an owner that has lost its log repeats nothing, and takes nothing back", async () => {
    const old = await owner("pod-1");
    await old.commit(messageRecord("s", 1));
    trouble = "late";
    await old.journal.flush();
    const next = open("pod-2");
    const taken = await take(next, 0, "pod-2");
    await next.recover(taken);
    const gone = header("s", { lastSeq: 1, status: "deleted" });
    const at = headOf(await next.commit(taken, record({ headers: [gone] })));
    while ((await standing()) < at.offset) await next.flush();
    expect(await standing()).toBe(at.offset);
    for (const land of late) expect((await land())[0]).toEqual([]);
    await old.journal.flush();
    expect(await standing()).toBe(at.offset);
    expect(await archivedSeqs("s")).toEqual([]);
    expect(await all("session")).toMatchObject([{ status: "deleted" }]);
  });

  test("S2: that comes after the log was moved back to the database changes nothing there", async () => {
    const { journal, commit, head } = await owner();
    await commit(messageRecord("s", 1));
    await journal.flush();
    trouble = "late";
    await commit(messageRecord("s", 2));
    await journal.flush();
    const archived = await standing();
    const moved = { ...head, recordId: "end", offset: 100, archived };
    await sound.write(returnToDatabase([moved], sql`1 = 1`));
    expect((await logPlaceOf(sound)).place).toBe("sql");
    const before = await Promise.all(archivedTables.map(all));
    const [moveLate] = await late[0]!();
    expect(moveLate).toEqual([]);
    await journal.flush();
    expect(await Promise.all(archivedTables.map(all))).toEqual(before);
    await expect(settled(journal.entries("s", everything))).rejects.toMatchObject({
      message: expect.stringContaining("is in the database by now"),
    });
  });

  test("S2: needs the place, also where it finds its watermark as it was", async () => {
    const { journal, commit } = await owner();
    await commit(messageRecord("s", 1));
    await journal.flush();
    await commit(messageRecord("s", 2));
    await sound.write([sql`update ${table("log_place")} set place = 'sql'`]);
    await journal.flush();
    expect(await archivedSeqs("s")).toEqual([1]);
    await sound.write([sql`delete from ${table("log_watermark")}`]);
    await journal.flush();
    expect(await all("log_watermark")).toEqual([]);
    expect(await archivedSeqs("s")).toEqual([1]);
  });

  test("doesn't begin for a log that is in the database", async () => {
    await sound.write([sql`update ${table("log_place")} set place = 'sql'`]);
    await expect(owner()).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("is in the database by now"),
    });
    expect(await all("log_watermark")).toEqual([]);
  });

  test("S9: of a record that its owner found stored late is none where the next owner has archived it", async () => {
    const old = await owner("pod-1");
    await old.commit(messageRecord("s", 1));
    const found = messageRecord("s", 2);
    servers.troubles = { ...noStreamTroubles, after: 1, unread: 1 };
    await expect(settled(old.journal.commit(old.head, found))).rejects.toMatchObject({
      code: "unknown_outcome",
    });
    servers.troubles = noStreamTroubles;
    const next = open("pod-2");
    await next.recover(await take(next, 0, "pod-2"));
    await next.flush();
    const before = await standing();
    // It learns that from the first of its own, and then that the second was stored.
    await old.journal.flush();
    await old.commit(found);
    await old.journal.flush();
    expect(await standing()).toBe(before);
    expect(await all("archive_aside")).toEqual([]);
    expect(old.journal.state()).toMatchObject({ isAway: false, unarchivedEntries: 0 });
    expect(await archivedSeqs("s")).toEqual([1, 2]);
  });

  test("that another owner was ahead of goes on from there", async () => {
    const old = await owner("pod-1");
    await old.commit(messageRecord("s", 1));
    const next = open("pod-2");
    const taken = await take(next, 0, "pod-2");
    await next.recover(taken);
    // It still has the log, as far as it knows.
    await old.journal.flush();
    expect(await archivedSeqs("s")).toEqual([1]);
    headOf(await next.commit(taken, messageRecord("s", 2)));
    await next.flush();
    expect(await archivedSeqs("s")).toEqual([1]);
    await next.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2]);
  });

  test("that is refused as a whole is stored in parts, and nothing of it is set aside", async () => {
    const { journal, commit } = await owner();
    for (const seq of [1, 2, 3, 4]) await commit(messageRecord("s", seq));
    trouble = "refused";
    await journal.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2]);
    await journal.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2, 3, 4]);
    expect(journal.state()).toMatchObject({ aside: 0, leftOut: 0, unarchivedEntries: 0 });
  });

  test("S2: of a record that the database refuses leaves a placeholder, and its bytes aside", async () => {
    const { journal, commit } = await owner();
    await sound.write([
      sql`create trigger refuse before insert on ${table("message")}
        when new.author = 'refused' begin select raise(abort, 'no such author'); end`,
    ]);
    await commit(messageRecord("s", 1));
    const bad = entry("s", 2, { author: "refused" });
    await commit(record({ entries: [bad], headers: [header("s", { lastSeq: 2 })] }));
    await commit(messageRecord("s", 3));
    await commit(messageRecord("t", 1));
    while (journal.state().unarchivedEntries > 0) await journal.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2, 3]);
    expect(await archivedSeqs("t")).toEqual([1]);
    const [, placeholder] = await journal.entries("s", everything);
    expect(placeholder).toMatchObject({ author: "", messageId: "aside-2" });
    const [aside] = await all("archive_aside");
    expect(aside!["reason"]).toContain("no such author");
    expect(aside!["body"]).toContain("said 2");
    expect(journal.state().aside).toBe(1);
  });

  test("S13: with tasks stores them with the watermark, and wakes its pod for them", async () => {
    let woken = 0;
    const { journal, commit } = await owner("pod-1", { onEnqueued: () => woken++ });
    await commit({ ...messageRecord("s", 1), tasks: [startedTask("s", "task-1")] });
    expect(await all("task")).toEqual([]);
    trouble = "refused";
    await commit({ ...messageRecord("s", 2), tasks: [startedTask("s", "task-2", { delayMs: 5 })] });
    await journal.flush();
    expect(await archivedSeqs("s")).toEqual([1]);
    expect((await all("task")).map((row) => row["task_id"])).toEqual(["task-1"]);
    expect(woken).toBe(1);
    await journal.flush();
    expect((await all("task")).map((row) => row["task_id"])).toEqual(["task-1", "task-2"]);
    expect((await all("link")).map((row) => row["from_id"])).toEqual(["s", "s"]);
    expect(woken).toBe(1);
  });

  test.each(["after", "before", "late"] as const)(
    "S13: whose answer is lost %s stores its tasks once",
    async (when) => {
      const { journal, commit } = await owner();
      await commit({ ...messageRecord("s", 1), tasks: [startedTask("s", "task-1")] });
      trouble = when;
      await journal.flush();
      await journal.flush();
      await sound.write([sql`update ${table("task")} set status = 'completed'`]);
      for (const land of late) await land();
      await journal.flush();
      const found = await all("task");
      expect(found.map((row) => [row["task_id"], row["status"]])).toEqual([
        ["task-1", "completed"],
      ]);
      expect(await archivedSeqs("s")).toEqual([1]);
    },
  );

  test("S13: with a task lets those run at once that it outdates, of this flush and of earlier ones", async () => {
    const { journal, commit } = await owner();
    const runAtMs = 32_503_680_000_000;
    const commitTask = (seq: number, outdates?: readonly string[]) =>
      commit({
        ...messageRecord("s", seq),
        tasks: [startedTask("s", `task-${seq}`, { runAtMs, ...(outdates && { outdates }) })],
      });
    await commitTask(1);
    await journal.flush();
    await commitTask(2, ["task-1"]);
    await commitTask(3, ["task-2"]);
    await journal.flush();
    const later = (await all("task")).filter((row) => Number(row["run_at"]) === runAtMs);
    expect(later.map((row) => row["task_id"])).toEqual(["task-3"]);
  });

  test("S13: of tasks whose keys are taken by then makes their ids names of the holders", async () => {
    const { journal, commit } = await owner();
    const keyed = (taskId: string) => startedTask("s", taskId, { key: "once" });
    await commit({ ...messageRecord("s", 1), tasks: [keyed("task-1")] });
    await commit({ ...messageRecord("s", 2), tasks: [keyed("task-2")] });
    await journal.flush();
    await commit({ ...messageRecord("s", 3), tasks: [keyed("task-3")] });
    await journal.flush();
    expect((await all("task")).map((row) => row["task_id"])).toEqual(["task-1"]);
    expect(await all("task_alias")).toEqual([
      { alias_id: "task-2", task_id: "task-1" },
      { alias_id: "task-3", task_id: "task-1" },
    ]);
  });

  test("S13: of a task that the database refuses sets it aside, and what waits for it", async () => {
    const { journal, commit } = await owner();
    await sound.write([
      sql`create trigger refuse before insert on ${table("task")}
        when new.name = 'refused' begin select raise(abort, 'no such task'); end`,
    ]);
    const tasks = [
      startedTask("s", "task-1"),
      startedTask("s", "task-2", { name: "refused" }),
      startedTask("s", "task-3", { after: ["task-2"], depends: 1 }),
    ];
    await commit({ ...messageRecord("s", 1), tasks });
    await commit(messageRecord("s", 2));
    while (journal.state().unarchivedEntries > 0) await journal.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2]);
    expect((await all("task")).map((row) => row["task_id"])).toEqual(["task-1"]);
    const aside = await all("archive_aside");
    expect(aside.map((row) => [row["place"], row["session_id"]])).toEqual([
      [-3, "s"],
      [-4, "s"],
    ]);
    expect(aside[0]!["reason"]).toContain("no such task");
    expect(aside[0]!["body"]).toContain("task-2");
    expect(aside[1]!["reason"]).toContain("task-2");
  });

  test("S3: leaves out a client id that is stored under another seq, and counts it", async () => {
    const { journal, commit } = await owner();
    await commit(messageRecord("s", 1, 2));
    await journal.flush();
    // As when the database was away for longer than ids are kept.
    await sound.write([sql`update ${table("message")} set client_id = 'later' where seq = 1`]);
    const again = record({
      entries: [entry("s", 3, { clientId: "later" })],
      headers: [header("s", { lastSeq: 3 })],
    });
    await commit(again);
    await journal.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2, 3]);
    expect(journal.state()).toMatchObject({ leftOut: 1, aside: 0, unarchivedEntries: 0 });
    const ids = await rows(sql`select client_id from ${table("message")} order by seq`);
    expect(ids.map((row) => row["client_id"])).toEqual(["later", "s/2", null]);
  });
});

describe("an archive that was set back", () => {
  /** Takes the archive back to a watermark, as a restored backup does. */
  const setBack = async (before: readonly Row[], keep: number) => {
    const [row] = before;
    await sound.write([
      sql`update ${table("log_watermark")}
        set log_offset = ${row!["log_offset"]}, record_id = ${row!["record_id"]},
          chain = ${row!["chain"]}`,
      sql`delete from ${table("message")} where seq > ${keep}`,
      sql`update ${table("session")} set last_offset = ${row!["log_offset"]}, last_seq = ${keep}`,
    ]);
  };

  test("is filled again from what the log has kept, while its owner goes on", async () => {
    const { journal, commit } = await owner();
    await commit(messageRecord("s", 1));
    await journal.flush();
    const before = await all("log_watermark");
    for (const seq of [2, 3, 4]) await commit(messageRecord("s", seq));
    await journal.flush();
    await setBack(before, 1);
    await commit(messageRecord("s", 5));
    await journal.flush();
    expect(await readSeqs(journal, "s")).toEqual([1, 2, 3, 4, 5]);
    await journal.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2, 3, 4, 5]);
    expect(warnings).toContain("the archive was set back, and is filled again from the log");
  });

  test("is filled again by the next owner, before it serves", async () => {
    const { journal, commit } = await owner();
    await commit(messageRecord("s", 1));
    await journal.flush();
    const before = await all("log_watermark");
    for (const seq of [2, 3, 4]) await commit(messageRecord("s", seq));
    journal.start();
    await clock.advance(2_000);
    await journal.stop();
    await setBack(before, 1);
    const next = open("pod-2");
    await next.recover(await take(next, 0, "pod-2"));
    expect(await readSeqs(next, "s")).toEqual([1, 2, 3, 4]);
    await next.flush();
    expect(await archivedSeqs("s")).toEqual([1, 2, 3, 4]);
  });

  test("beyond what the log has kept isn't served, with a sentence", async () => {
    const { journal, commit } = await owner();
    await commit(messageRecord("s", 1));
    await journal.flush();
    const before = await all("log_watermark");
    journal.start();
    for (let seq = 2; seq <= 60; seq++) {
      const parts = [{ type: "text", text: "a".repeat(10_000) }];
      const entries = [entry("s", seq, { parts })];
      await commit(record({ entries, headers: [header("s", { lastSeq: seq })] }));
      await clock.advance(1_100);
    }
    expect(journal.state().trims).toBeGreaterThan(0);
    await journal.stop();
    await setBack(before, 1);
    const next = open("pod-2");
    const taken = await take(next, 0, "pod-2");
    await expect(next.recover(taken)).rejects.toMatchObject({
      code: "unavailable",
      message: expect.stringContaining("was set back to") as string,
    });
  });
});

describe("marks", () => {
  test("don't fence their owner, and let the next one begin where the archive ends", async () => {
    const { journal, commit, head } = await owner();
    journal.start();
    await commit(busyRecord("busy", 1));
    await commit(messageRecord("s", 1));
    await clock.advance(1_500);
    const marked = await currentHead(journal);
    expect(marked.offset).toBeGreaterThan(head.offset + 2);
    await commit(messageRecord("s", 2));
    await journal.stop();
    trouble = "away";
    const next = open("pod-2");
    const taken = await take(next, 0, "pod-2");
    const { busy } = await settled(next.recover(taken));
    expect(busy.map(({ sessionId }) => sessionId)).toEqual(["busy"]);
    expect(next.state().unarchivedEntries).toBe(1);
  });

  test("whose answer is lost are settled before anything else is sent", async () => {
    const { journal, commit } = await owner();
    await commit(messageRecord("s", 1));
    await journal.flush();
    servers.next = "after";
    journal.start();
    await clock.advance(1_000);
    await clock.advance(900);
    await settled(commit(messageRecord("s", 2)));
    await settled(commit(messageRecord("s", 3)));
    expect(await readSeqs(journal, "s")).toEqual([1, 2, 3]);
    await journal.stop();
  });

  test("come every second while a session of the log is at work, and no more often", async () => {
    const { journal, commit } = await owner();
    journal.start();
    const at = await commit(busyRecord("s", 1));
    await clock.advance(10_500);
    const { offset } = await currentHead(journal);
    expect(offset - at.offset).toBeGreaterThanOrEqual(8);
    expect(offset - at.offset).toBeLessThanOrEqual(11);
    await journal.stop();
  });

  test("of a log that is followed and gets no records don't fill it", async () => {
    const { journal, commit } = await owner("pod-1", { isFollowed: () => true });
    journal.start();
    const at = await commit(messageRecord("s", 1));
    await clock.advance(30 * 60_000);
    expect((await currentHead(journal)).offset - at.offset).toBeGreaterThan(1_500);
    expect(storedIn(at).length).toBeLessThan(800);
    await journal.stop();
  });

  test("that servers don't answer for long are said to be missing once, and once more the next time", async () => {
    const { journal, commit } = await owner("pod-1", { isFollowed: () => true });
    await commit(messageRecord("s", 1));
    journal.start();
    await clock.advance(3_000);
    for (let outage = 1; outage <= 2; outage++) {
      servers.troubles = { ...noStreamTroubles, before: 1 };
      await clock.advance(60_000);
      expect(warnings.filter((each) => each.includes("isn't marked"))).toHaveLength(outage);
      servers.troubles = noStreamTroubles;
      await clock.advance(10_000);
    }
    await journal.stop();
  });

  test("S10: let a full log give its margin away once it is archived", async () => {
    const { journal, commit } = await owner();
    let seq = 0;
    const say = () => {
      const entries = [
        entry("s", seq + 1, { parts: [{ type: "text", text: "a".repeat(20_000) }] }),
      ];
      return commit(record({ entries, headers: [header("s", { lastSeq: seq + 1 })] }));
    };
    const fill = async () => {
      for (;;) {
        await say();
        seq++;
      }
    };
    await expect(fill()).rejects.toMatchObject({ code: "overloaded" });
    expect(seq).toBeGreaterThan(30);
    journal.start();
    await clock.advance(3_000);
    expect(journal.state()).toMatchObject({ unarchivedEntries: 0, trims: 1 });
    await say();
    expect(await readSeqs(journal, "s")).toHaveLength(seq + 1);
    await journal.stop();
  });

  test("S7: a read of a log that another pod has taken isn't answered from memory", async () => {
    const old = await owner("pod-1");
    await old.commit(messageRecord("s", 1));
    const next = open("pod-2");
    const taken = await take(next, 0, "pod-2");
    await next.recover(taken);
    headOf(await next.commit(taken, messageRecord("s", 2)));
    clock.jump(2_500);
    expect(await readSeqs(old.journal, "s")).toEqual([1, 2]);
  });

  const codeOf = ({ code }: FlotillaError) => ({ type: code });

  test.each(["record", "mark"] as const)(
    "S7: a %s that is found when it is sent again proves no more than its first send did",
    async (kind) => {
      const old = await owner("pod-1");
      await old.commit(messageRecord("s", 1));
      await old.journal.flush();
      servers.next = "after";
      const record = messageRecord("s", 2);
      const send = () => settled(old.journal.commit(old.head, record)).catch(codeOf);
      const sent = {
        record: { first: send, again: async () => (await send()).type, seqs: [1, 2, 3] },
        mark: {
          first: async () => (old.journal.start(), await clock.advance(2_000), servers.next),
          again: async () => "committed",
          seqs: [1, 3],
        },
      }[kind];
      expect(await sent.first()).toEqual(
        kind === "record" ? { type: "unknown_outcome" } : undefined,
      );
      const next = open("pod-2");
      const taken = await take(next, 0, "pod-2");
      await next.recover(taken);
      headOf(await next.commit(taken, messageRecord("s", 3)));
      // The process of the first was paused meanwhile.
      clock.jump(2_500);
      expect(await sent.again()).toBe("committed");
      expect(await readSeqs(old.journal, "s")).toEqual(sent.seqs);
      await old.journal.stop();
    },
  );
});

describe("a log without an owner", () => {
  test("is waited for by what reads its sessions", async () => {
    const { journal, commit } = await owner("pod-1");
    const last = await commit(messageRecord("s", 1));
    await journal.release("pod-1", [last]);
    const reader = open("pod-2");
    const reading = reader.entries("s", everything);
    await clock.advance(1_000);
    const next = open("pod-3");
    await next.recover(await take(next, 0, "pod-3"));
    expect(await settled(reading)).toHaveLength(1);
  });

  test("that gets none is told to a reader after fifteen seconds", async () => {
    const { journal, commit } = await owner("pod-1");
    const last = await commit(messageRecord("s", 1));
    await journal.release("pod-1", [last]);
    await expect(settled(open("pod-2").header("s"))).rejects.toMatchObject({
      code: "store_unavailable",
    });
  });
});

describe("a log whose database is away", () => {
  test("is read as far as it goes, also what was archived, by its owner and by other pods, and follows what is added", async () => {
    const { journal, commit } = await owner();
    const other = open("pod-2");
    await commit(messageRecord("s", 1));
    await commit(messageRecord("s", 2));
    await journal.flush();
    expect(journal.state().unarchivedEntries).toBe(0);
    trouble = "away";
    for (const reads of [journal, other]) {
      const tail = await settled(reads.tail("s", { after: 0, upTo: 2, limit: 10 }));
      expect(tail.map(({ seq }) => seq)).toEqual([1, 2]);
      const entries = await settled(reads.entries("s", { after: 1, limit: 10 }));
      expect(entries.map(({ seq }) => seq)).toEqual([2]);
      expect((await settled(reads.header("s")))?.lastSeq).toBe(2);
    }
    await commit(messageRecord("s", 3));
    for (const reads of [journal, other]) {
      const tail = await settled(reads.tail("s", { after: 0, upTo: 3, limit: 10 }));
      expect(tail.map(({ seq }) => seq)).toEqual([1, 2, 3]);
    }
    trouble = undefined;
    await journal.flush();
    const page = await settled(other.entries("s", { after: 0, limit: 10 }));
    expect(page.map(({ seq }) => seq)).toEqual([1, 2, 3]);
  });

  test("for one pod alone is read once by its owner, which forgets it when no pod asks any more", async () => {
    const reading = vi.spyOn(servers.connect(), "readFrom");
    const { journal, commit } = await owner();
    journal.start();
    const cutOff = open("pod-2", { database: unreached() });
    const tail = async (upTo: number) =>
      (await settled(cutOff.tail("s", { after: 0, upTo, limit: 100 }))).map(({ seq }) => seq);
    await commit(messageRecord("s", 1));
    await clock.advance(2_000);
    const before = reading.mock.calls.length;
    for (let seq = 2; seq <= 20; seq++) {
      await commit(messageRecord("s", seq));
      await clock.advance(2_000);
      expect(await tail(seq)).toHaveLength(seq);
    }
    expect(await archivedSeqs("s")).toHaveLength(20);
    expect(reading.mock.calls.length).toBe(before + 1);
    await clock.advance(40_000);
    expect(await tail(20)).toHaveLength(20);
    expect(reading.mock.calls.length).toBe(before + 2);
    await journal.stop();
  });

  test("for one pod alone is read while the log is, by one read for all who ask", async () => {
    const reading = vi.spyOn(servers.connect(), "readFrom");
    const { journal, commit } = await owner();
    await commit(messageRecord("s", 1));
    await journal.flush();
    const known = await journal.heads();
    const heads = { all: async () => known };
    const cutOff = open("pod-2", { database: unreached(), heads });
    const before = reading.mock.calls.length;
    servers.troubles = { ...noStreamTroubles, delayMs: 500 };
    const asked: Promise<unknown>[] = [];
    for (let at = 0; at < 5; at++) {
      asked.push(cutOff.tail("s", { after: 0, upTo: 1, limit: 100 }));
      await clock.advance(30);
      await journal.flush();
    }
    servers.troubles = noStreamTroubles;
    for (const each of await settled(Promise.all(asked))) expect(each).toHaveLength(1);
    expect(reading.mock.calls.length).toBe(before + 1);
  });

  test("for one pod alone keeps nothing in its owner's memory that the log has trimmed", async () => {
    const { journal, commit } = await owner();
    journal.start();
    const cutOff = open("pod-2", { database: unreached() });
    await commit(messageRecord("s", 1));
    const tail = (upTo: number) => cutOff.tail("s", { after: upTo - 1, upTo, limit: 100 });
    for (let seq = 2; seq <= 40; seq++) {
      await commit(messageRecord("s", seq));
      await clock.advance(20_000);
      expect(await settled(tail(seq))).toHaveLength(1);
    }
    expect(journal.state().trims).toBeGreaterThan(0);
    await expect(settled(tail(1))).rejects.toMatchObject({ code: "store_unavailable" });
    await journal.stop();
  });

  test("says of what it doesn't have that it can't be read now, and of no session that there is none", async () => {
    const { journal, commit } = await owner();
    await commit(messageRecord("s", 2));
    await journal.flush();
    trouble = "away";
    const older = settled(journal.tail("s", { after: 0, upTo: 2, limit: 10 }));
    await expect(older).rejects.toMatchObject({ code: "store_unavailable" });
    await expect(settled(journal.header("t"))).rejects.toMatchObject({ code: "store_unavailable" });
    // But a pod knows of an id that it has just drawn, unless the log has it by now.
    expect(await settled(journal.header("t", { isFresh: true }))).toBeUndefined();
    expect((await settled(journal.header("s", { isFresh: true })))?.lastSeq).toBe(2);
  });
});
