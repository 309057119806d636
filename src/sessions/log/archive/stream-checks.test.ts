import { beforeEach, describe, expect, test } from "vitest";
import {
  type MovableClock,
  movableClock,
  settledBy,
} from "../../../base/contract/movable-clock.ts";
import { FlotillaError, hasCode } from "../../../base/errors.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { type Logger, silentLogger } from "../../../base/log.ts";
import { seededRandom } from "../../../base/random.ts";
import { memoryKind } from "../../../store/contract/kinds.ts";
import type { Database } from "../../../store/database.ts";
import { migrate } from "../../../store/migrate.ts";
import { everything, headOf, messageRecord, take } from "../../contract/journal-harness.ts";
import { type SimulatedStreams, simulateStreams } from "../../contract/simulated-streams.ts";
import type { StreamEngine, StreamSettings } from "../jetstream/engine.ts";
import { createStreamLog } from "../jetstream/log.ts";
import { logStream, metaStreamName, shareStreamName, streamName } from "../jetstream/streams.ts";
import type { Head, LogRecord } from "../journal.ts";
import { createSqlReads } from "../sql-journal.ts";
import { createArchivedJournal } from "./journal.ts";
import { placeOnStreams } from "../place.ts";

const random = seededRandom(11);
const deployment = {
  namespace: "test",
  clusterId: "c1",
  replicas: 3,
  maxLogBytes: 1_000_000,
} as const;

let clock: MovableClock;
let servers: SimulatedStreams;
let database: Database;
let isAway: boolean;
let lines: { level: string; fields: Record<string, unknown>; message: string }[];

beforeEach(async () => {
  clock = movableClock();
  servers = simulateStreams({ clock, random });
  const { database: sound } = await memoryKind.open();
  await migrate(sound);
  await placeOnStreams(sound);
  isAway = false;
  const write: Database["write"] = async (statements, options) => {
    if (isAway) throw new FlotillaError("store_unavailable", "the database is away");
    return sound.write(statements, options);
  };
  database = { ...sound, write };
  lines = [];
});

function open(engine = servers.connect()) {
  const ids = uuidv7(clock, random);
  const parts = { clock, random, ids };
  const at =
    (level: string): Logger["warn"] =>
    (fields, message) =>
      void lines.push({ level, fields: { ...fields }, message });
  const log = { ...silentLogger, info: at("info"), warn: at("warn"), error: at("error") };
  const made = { ...parts, engine, deployment, log: silentLogger, maxRecordBytes: 100_000 };
  const stream = createStreamLog(made);
  const journal = createArchivedJournal({ ...parts, stream, database, log });
  return { journal, createShares: () => stream.streams.createShares() };
}

/** A pod that owns the only log, and looks after it. */
async function owner(engine?: StreamEngine) {
  const { journal, createShares } = open(engine);
  await journal.create(1);
  await createShares();
  let head = await take(journal, 0, "pod-1");
  await journal.recover(head);
  journal.start();
  return {
    journal,
    nameOf: (at: Head = head) => streamName(deployment, { ...at, firstSequence: 1 }),
    async commit(record: LogRecord) {
      head = headOf(await settledBy(clock, journal.commit(head, record)));
    },
    refusalOf: (record: LogRecord) =>
      settledBy(
        clock,
        journal.commit(head, record).then(
          () => undefined,
          (error: unknown) => error as FlotillaError,
        ),
      ),
    get head() {
      return head;
    },
  };
}

/** As long as it takes until a change is seen. */
const seen = () => clock.advance(11_000);
const told = (level: string) => lines.filter((each) => each.level === level);

describe("a stream that is changed while its log is served", () => {
  test.each<[Partial<StreamSettings>, unknown]>([
    [{ maxAgeMs: 3_600_000 }, 0],
    [{ discard: "old" }, "new"],
    [{ replicas: 1 }, 3],
    [{ maxPerSubject: 100 }, -1],
    [{ storage: "memory" }, "file"],
    [{ isForeign: true }, false],
  ])(
    "S1: so that it could lose messages takes none until it is set back: %o",
    async (change, set) => {
      const pod = await owner();
      await pod.commit(messageRecord("s", 1));
      const stream = pod.nameOf();
      servers.change(stream, change);
      await seen();
      const [[setting, value]] = Object.entries(change) as [[string, unknown]];
      expect(told("error")).toEqual([
        {
          level: "error",
          fields: { log: 0, stream, setting, value, set },
          message: expect.stringContaining("takes no messages until"),
        },
      ]);
      expect(pod.journal.state().changedStreams).toBe(1);
      const before = servers.stored(stream).filter(({ subject }) => subject.endsWith(".r")).length;
      expect(await pod.refusalOf(messageRecord("s", 2))).toMatchObject({
        code: "store_unavailable",
        message: expect.stringMatching(
          /log 0 takes no messages: .* was changed by hand: set it back/,
        ),
      });
      expect(servers.stored(stream).filter(({ subject }) => subject.endsWith(".r"))).toHaveLength(
        before,
      );
      // What was acknowledged before is read, and comes into the archive.
      const entries = await settledBy(clock, pod.journal.entries("s", everything));
      expect(entries.map(({ seq }) => seq)).toEqual([1]);
      expect(pod.journal.state().unarchivedEntries).toBe(0);

      servers.change(stream, { [setting]: set });
      await clock.advance(2_000);
      expect(told("info").map(({ message }) => message)).toContain(
        "a stream is as it was made again",
      );
      await pod.commit(messageRecord("s", 2));
      expect(pod.journal.state().changedStreams).toBe(0);
      expect(told("error")).toHaveLength(1);
      await pod.journal.stop();
    },
  );

  test.each<Partial<StreamSettings>>([
    { subjects: ["elsewhere"] },
    { maxBytes: 2_000_000 },
    { maxMessages: 10_000 },
    { allowDirect: false },
    { isCompressed: true },
    { replicas: 5 },
  ])("in any other way is named once, and goes on: %o", async (change) => {
    const pod = await owner();
    servers.change(pod.nameOf(), change);
    await seen();
    await seen();
    const [[setting, value]] = Object.entries(change) as [[string, unknown]];
    const set = logStream(deployment, { ...pod.head, firstSequence: 1 })[
      setting as keyof StreamSettings
    ];
    expect(told("warn")).toEqual([
      {
        level: "warn",
        fields: { log: 0, stream: pod.nameOf(), setting, value, set },
        message: "a stream was changed by hand: set it back",
      },
    ]);
    expect(pod.journal.state().changedStreams).toBe(1);
    await pod.commit(messageRecord("s", 1));
    await pod.journal.stop();
  });

  test("is found by the pod that takes its log, before it serves", async () => {
    const pod = await owner();
    servers.change(pod.nameOf(), { maxAgeMs: 60_000 });
    const { journal } = open();
    const taken = await take(journal, 0, "pod-2");
    await journal.recover(taken);
    await expect(journal.commit(taken, messageRecord("s", 1))).rejects.toMatchObject({
      message: expect.stringContaining("maxAgeMs is 60000, not 0"),
    });
    await pod.journal.stop();
  });

  test("O2: keeps a record from being settled that was sent before, neither stored nor lost", async () => {
    const pod = await owner();
    const record = messageRecord("s", 1);
    servers.next = "after";
    expect(await pod.refusalOf(record)).toMatchObject({ code: "unknown_outcome" });
    servers.change(pod.nameOf(), { discard: "old" });
    await seen();
    expect(await pod.refusalOf(messageRecord("s", 2))).toMatchObject({ code: "store_unavailable" });
    await pod.commit(record);
    expect(
      servers.stored(pod.nameOf()).filter(({ subject }) => subject.endsWith(".r")),
    ).toHaveLength(1);
    await pod.journal.stop();
  });

  test("and deleted takes no message, and says so at once", async () => {
    const pod = await owner();
    servers.remove(pod.nameOf());
    await seen();
    expect(told("error")).toMatchObject([
      { fields: { log: 0, stream: pod.nameOf() }, message: expect.stringContaining("is gone") },
    ]);
    expect(await pod.refusalOf(messageRecord("s", 1))).toMatchObject({
      code: "store_unavailable",
      message: expect.stringContaining("is gone: restore it from a backup"),
    });
    await pod.journal.stop();
  });

  test("and purged is named while its owner alone has what the database lacks", async () => {
    const pod = await owner();
    await pod.commit(messageRecord("s", 1));
    await seen();
    isAway = true;
    await pod.commit(messageRecord("s", 2));
    await seen();
    expect(told("error")).toEqual([]);
    await servers.connect().purge(pod.nameOf(), pod.head.offset + 1);
    await seen();
    await seen();
    expect(told("error")).toMatchObject([
      { fields: { log: 0 }, message: expect.stringContaining("were purged by hand") },
    ]);
    isAway = false;
    await seen();
    const archived = createSqlReads({ database }).entries("s", everything);
    expect((await archived).map(({ seq }) => seq)).toEqual([1, 2]);
    await pod.journal.stop();
  });

  test("is looked at soon where a message of it isn't answered", async () => {
    const pod = await owner();
    await seen();
    servers.change(pod.nameOf(), { replicas: 1 });
    servers.next = "before";
    expect(await pod.refusalOf(messageRecord("s", 1))).toMatchObject({ code: "unknown_outcome" });
    await clock.advance(1_500);
    expect(told("error")).toHaveLength(1);
    await pod.journal.stop();
  });
});

test.each([
  ["what says which logs there are", metaStreamName(deployment)],
  ["shares of throttles", shareStreamName(deployment)],
])("the stream of %s is named by the owner of the first log, and stops none", async (_, name) => {
  const pod = await owner();
  servers.change(name, { replicas: 1 });
  await seen();
  expect(told("error").map(({ fields }) => fields)).toEqual([
    { log: 0, stream: name, setting: "replicas", value: 1, set: 3 },
  ]);
  await pod.commit(messageRecord("s", 1));
  expect(pod.journal.state().changedStreams).toBe(1);
  await pod.journal.stop();
});

test("servers that don't say how a stream is set change nothing of what is known of it", async () => {
  const real = servers.connect();
  let isSilent = false;
  const state: StreamEngine["state"] = async (name) => {
    if (isSilent) throw new FlotillaError("store_unavailable", "no answer");
    return real.state(name);
  };
  const pod = await owner({ ...real, state });
  servers.change(pod.nameOf(), { discard: "old" });
  await seen();
  isSilent = true;
  servers.change(pod.nameOf(), { discard: "new" });
  await seen();
  const refusal = await pod.refusalOf(messageRecord("s", 1));
  expect(hasCode(refusal, "store_unavailable")).toBe(true);
  isSilent = false;
  await clock.advance(2_000);
  await pod.commit(messageRecord("s", 1));
  expect(told("error")).toHaveLength(1);
  await pod.journal.stop();
});
