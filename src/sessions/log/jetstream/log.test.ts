import { beforeEach, describe, expect, test } from "vitest";
import { systemClock } from "../../../base/clock.ts";
import { FlotillaError, hasCode } from "../../../base/errors.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { type Logger, silentLogger } from "../../../base/log.ts";
import {
  type MovableClock,
  movableClock,
  settledBy,
} from "../../../base/contract/movable-clock.ts";
import { seededRandom } from "../../../base/random.ts";
import {
  busyRecord,
  fresh,
  header,
  headOf,
  messageRecord,
  record,
  take,
  turn,
} from "../../contract/journal-harness.ts";
import { logContract } from "../../contract/log.ts";
import {
  noStreamTroubles,
  type PublishTrouble,
  type SimulatedStreams,
  simulateStreams,
} from "../../contract/simulated-streams.ts";
import type { CommitResult, Head, LogRecord } from "../journal.ts";
import { checkStreams } from "./create-streams.ts";
import type { StreamEngine } from "./engine.ts";
import { createStreamLog, type StreamLog } from "./log.ts";
import type { ReplayedRecord } from "./replay.ts";
import { checkServers } from "./requirements.ts";
import { type Deployment, metaStreamName, streamName, usualLogBytes } from "./streams.ts";

const random = seededRandom(1);
const deployment: Deployment = {
  namespace: "test",
  clusterId: "c1",
  replicas: 3,
  maxLogBytes: usualLogBytes,
};
const maxRecordBytes = 8 * 1_024 * 1_024 - 64 * 1_024;

logContract({
  name: "on simulated JetStream",
  async open() {
    const clock = systemClock;
    const servers = simulateStreams({ clock, random });
    const open = () =>
      createStreamLog({
        engine: servers.connect(),
        deployment,
        clock,
        random,
        ids: uuidv7(clock, random),
        log: silentLogger,
        maxRecordBytes,
      });
    return { log: open(), another: async () => open(), close: async () => {} };
  },
});

let clock: MovableClock;
let servers: SimulatedStreams;
let log: StreamLog;
let another: StreamLog;
let warnings: object[];
let errors: object[];

beforeEach(async () => {
  clock = movableClock();
  servers = simulateStreams({ clock, random });
  warnings = [];
  errors = [];
  log = open();
  another = open();
  await log.create(2);
});

function open(changes: Partial<Deployment> = {}, engine = servers.connect()): StreamLog {
  const warn: Logger["warn"] = (fields) => void warnings.push(fields);
  const error: Logger["error"] = (fields) => void errors.push(fields);
  return createStreamLog({
    engine,
    deployment: { ...deployment, ...changes },
    clock,
    random,
    ids: uuidv7(clock, random),
    log: { ...silentLogger, warn, error },
    maxRecordBytes,
  });
}

/** An engine of which one part answers otherwise. */
const engineWith = (changes: Partial<StreamEngine>): StreamEngine => ({
  ...servers.connect(),
  ...changes,
});

const nameOf = (head: Head): string => streamName(deployment, { ...head, firstSequence: 1 });
const storedIn = (head: Head) => servers.stored(nameOf(head));

/** Moves the clock until a call has ended. Gives what it threw on purpose as a value. */
function settled<Value>(call: Promise<Value>): Promise<Value | FlotillaError> {
  const ending = call.catch((error: unknown) => {
    if (hasCode(error, "internal")) throw error;
    return error as FlotillaError;
  });
  return settledBy(clock, ending);
}

/** Sends the same record to the same place until its outcome is known. */
async function commitUntilKnown(
  via: StreamLog,
  at: Head,
  sent: LogRecord,
  onUnknown = async () => {},
): Promise<CommitResult | FlotillaError> {
  for (;;) {
    const result = await settled(via.commit(at, sent));
    if (!hasCode(result, "unknown_outcome")) return result;
    await onUnknown();
  }
}

async function own(podId = "pod-1"): Promise<Head> {
  const head = await take(log, 0, podId);
  await log.recover(head);
  return head;
}

async function takeUntilKnown(via: StreamLog, podId: string): Promise<Head> {
  for (;;) {
    const seen = (await via.heads())[0]!;
    const owner = { podId, host: null, recordId: fresh("take") };
    const taken = await settled(via.take(seen, owner));
    if (taken !== undefined && !hasCode(taken, "unknown_outcome")) return taken as Head;
    await servers.land();
  }
}

const troubles: readonly PublishTrouble[] = [
  "before",
  "after",
  "late",
  "proposed",
  "false_wrong",
  "doubled",
];

describe.each(troubles)("a publish meets trouble: %s", (trouble) => {
  test("O2: the record is stored once, at its place", async () => {
    const head = await own();
    const sent = messageRecord("s", 1);
    servers.next = trouble;
    const committed = await commitUntilKnown(log, head, sent, () =>
      trouble === "proposed" ? servers.land() : Promise.resolve(),
    );
    expect(committed).toEqual({
      type: "committed",
      head: { ...head, offset: head.offset + 1, recordId: sent.recordId },
    });
    await servers.land();
    expect(storedIn(head).map(({ headers }) => headers["Fl-Record"])).toEqual([
      head.recordId,
      sent.recordId,
    ]);
    headOf(await log.commit(headOf(committed as CommitResult), messageRecord("s", 2)));
  });

  test("O7: the next owner has it as a whole or never, and its first owner is fenced", async () => {
    const head = await own();
    const sent = busyRecord("s", 1);
    servers.next = trouble;
    const first = await settled(log.commit(head, sent));
    const taken = await takeUntilKnown(another, "pod-2");
    const { busy } = await another.recover(taken);
    const isStored = storedIn(head).some(({ headers }) => headers["Fl-Record"] === sent.recordId);
    expect(busy).toHaveLength(isStored ? 1 : 0);
    await servers.land();
    expect((await another.heads())[0]).toEqual(taken);
    const again = await commitUntilKnown(log, head, sent);
    expect(again).toMatchObject({ type: isStored ? "committed" : "fenced" });
    expect(hasCode(first, "unknown_outcome") ? again : first).toEqual(again);
    const at = isStored ? headOf(again as CommitResult) : head;
    expect(await log.commit(at, busyRecord("s", 2))).toEqual({ type: "fenced" });
    expect((await another.heads())[0]).toEqual(taken);
  });

  test("O2: a take is resolved by taking again", async () => {
    const seen = (await log.heads())[0]!;
    const owner = { podId: "pod-1", host: "h", recordId: fresh("take") };
    servers.next = trouble;
    let taken = await settled(log.take(seen, owner));
    while (hasCode(taken, "unknown_outcome")) {
      if (trouble === "proposed") await servers.land();
      taken = await settled(log.take(seen, owner));
    }
    await servers.land();
    expect(taken).toMatchObject({ term: 1, offset: 1, owner: "pod-1", host: "h" });
    expect(storedIn(seen)).toHaveLength(1);
    headOf(await log.commit(taken as Head, messageRecord("s", 1)));
  });

  test("a log is released all the same", async () => {
    const head = await own();
    servers.next = trouble;
    const releasing = settled(log.release("pod-1", [head]));
    if (trouble === "proposed") await clock.advance(800).then(() => servers.land());
    await releasing;
    await servers.land();
    expect((await another.heads())[0]).toMatchObject({ owner: null, term: 1, offset: 2 });
  });
});

describe("an answer that says little", () => {
  test("O2: wrong last sequence with nothing there is no fence, however often it comes", async () => {
    const head = await own();
    const sent = messageRecord("s", 1);
    servers.troubles = { ...noStreamTroubles, falseWrong: 1 };
    for (let tries = 0; tries < 3; tries++) {
      expect(await settled(log.commit(head, sent))).toMatchObject({ code: "unknown_outcome" });
    }
    servers.troubles = noStreamTroubles;
    expect(await log.commit(head, sent)).toMatchObject({ type: "committed" });
  });

  test("O3: an ack of another sequence acknowledges nothing", async () => {
    const head = await own();
    const via = open(
      {},
      engineWith({
        publish: async (_, { stream }) => ({ type: "acked", stream, sequence: head.offset + 2 }),
      }),
    );
    expect(await settled(via.commit(head, messageRecord("s", 1)))).toMatchObject({
      code: "unknown_outcome",
    });
  });

  test("O2: a log that is full refuses nothing that may be stored already", async () => {
    log = open({ namespace: "small", maxLogBytes: 4_000 });
    await log.create(1);
    const head = await own();
    servers.next = "late";
    const sent = messageRecord("s", 1);
    expect(await settled(log.commit(head, sent))).toMatchObject({ code: "unknown_outcome" });
    const engine = servers.connect();
    // Another message has filled the stream, and left again when the record lands.
    const full = open(
      { namespace: "small", maxLogBytes: 4_000 },
      engineWith({ publish: async () => ({ type: "full" }) }),
    );
    expect(await settled(full.commit(head, sent))).toMatchObject({ code: "overloaded" });
    const doubtful = open(
      { namespace: "small", maxLogBytes: 4_000 },
      {
        ...engine,
        publish: (() => {
          let sends = 0;
          return async () => (++sends === 1 ? { type: "silent", why: "cut" } : { type: "full" });
        })(),
      },
    );
    for (let tries = 0; tries < 2; tries++) {
      expect(await settled(doubtful.commit(head, sent))).toMatchObject({ code: "unknown_outcome" });
    }
  });

  test("O2: a place that can't be read leaves the outcome unknown", async () => {
    const head = await own();
    await take(another, 0, "pod-2");
    const sent = messageRecord("s", 1);
    servers.troubles = { ...noStreamTroubles, unread: 1 };
    expect(await settled(log.commit(head, sent))).toMatchObject({ code: "unknown_outcome" });
    servers.troubles = noStreamTroubles;
    expect(await log.commit(head, sent)).toEqual({ type: "fenced" });
  });
});

describe("a replay", () => {
  test("O7: that ends early isn't served", async () => {
    let head = await own();
    for (const seq of [1, 2, 3]) head = headOf(await log.commit(head, busyRecord("s", seq)));
    const taken = await take(another, 0, "pod-2");
    const short = open(
      {},
      engineWith({
        async *readFrom(stream, { from }) {
          yield* servers.connect().readFrom(stream, { from, to: 2 });
        },
      }),
    );
    await expect(short.recover(taken)).rejects.toMatchObject({
      code: "store_unavailable",
      message: expect.stringContaining("it ends at 2, before 5"),
    });
    expect(await another.recover(taken)).toMatchObject({ busy: [{ lastSeq: 3 }] });
  });

  test("begins behind what the last mark calls archived, and knows who was busy before", async () => {
    const early = header("early", { lastSeq: 1, work: turn() });
    const done = header("done", { lastSeq: 1, work: turn() });
    let head = await own();
    head = headOf(await log.commit(head, record({ headers: [early, done] })));
    const archived = head.offset;
    const late = busyRecord("late", 1);
    head = headOf(await log.commit(head, late));
    head = headOf(await log.mark(head, { archived, busy: [early, done] }));
    const idle = record({ headers: [{ ...done, work: null }] });
    head = headOf(await log.commit(head, idle));
    await log.trim(head, archived);
    expect(storedIn(head)[0]!.sequence).toBe(archived);
    const taken = await take(another, 0, "pod-2");
    const found: ReplayedRecord[] = [];
    const { busy } = await another.recover(taken, (each) => found.push(each));
    expect(found.map((each) => each.record.recordId)).toEqual([late.recordId, idle.recordId]);
    expect(found.map((each) => each.offset)).toEqual([3, 5]);
    expect(busy.map(({ sessionId }) => sessionId)).toEqual(["late", "early"]);
    expect(another.lastMark(0)).toMatchObject({ archived });
  });

  test("O7: isn't begun from a mark of the owner that has taken the log since", async () => {
    const slow = headOf(await log.commit(await own(), busyRecord("s", 1)));
    const taken = await take(another, 0, "pod-2");
    await another.recover(taken);
    const next = headOf(await another.commit(taken, busyRecord("s", 2)));
    headOf(await another.mark(next, { archived: slow.offset - 1, busy: [] }));
    await expect(log.recover(slow)).rejects.toMatchObject({ code: "not_owner" });
  });

  test("begins with the log where there is no mark yet", async () => {
    const taken = await own();
    expect(log.lastMark(0)).toMatchObject({ archived: 0, busy: [] });
    const next = headOf(await log.mark(taken, { archived: 0, busy: [] }));
    expect(await log.recover(next)).toEqual({ busy: [] });
  });

  test("skips messages that aren't Flotilla's, which cost one taking", async () => {
    const head = await own();
    const next = headOf(await log.commit(head, busyRecord("s", 1)));
    const stray = { subject: "flotilla.test.x", headers: {}, body: Buffer.from("?") };
    servers.change(nameOf(next), (all) => all.push({ ...stray, sequence: next.offset + 1 }));
    expect(await log.commit(next, busyRecord("s", 2))).toEqual({ type: "fenced" });
    const taken = await take(another, 0, "pod-2");
    expect(taken).toMatchObject({ offset: next.offset + 2, term: 2 });
    expect(await another.recover(taken)).toMatchObject({ busy: [{ lastSeq: 1 }] });
    expect(warnings).toEqual([{ log: 0, strays: 1 }]);
    headOf(await another.commit(taken, busyRecord("s", 2)));
  });

  test.each<[string, (headers: Record<string, string>) => object]>([
    ["a body that was changed", () => ({ body: Buffer.from("{}") })],
    [
      "a chain that was changed",
      (headers) => ({ headers: { ...headers, "Fl-Chain": "0".repeat(16) } }),
    ],
    ["a term that falls", (headers) => ({ headers: { ...headers, "Fl-Term": "0" } })],
    ["no term at all", (headers) => ({ headers: { ...headers, "Fl-Term": "x" } })],
    ["a form of a newer release", (headers) => ({ headers: { ...headers, "Fl-V": "9" } })],
  ])("that meets %s isn't served", async (_, damage) => {
    const head = await own();
    const next = headOf(await log.commit(head, busyRecord("s", 1)));
    servers.change(nameOf(next), (all) => {
      all[1] = { ...all[1]!, ...damage(all[1]!.headers) };
    });
    const taken = await take(another, 0, "pod-2").catch(() => next);
    await expect(another.recover(taken)).rejects.toMatchObject({ code: "store_corrupt" });
  });

  describe("that misses a message in the middle", () => {
    let head: Head;
    /** Batches that lack the message 3, and how many of them there were. */
    let holes: number;
    const holed = (most = Infinity, changes: Partial<StreamEngine> = {}) =>
      open(
        {},
        engineWith({
          async *readFrom(stream, range) {
            const isHoled = range.from <= 3 && range.to >= 3 && holes < most;
            if (isHoled) holes++;
            for await (const each of servers.connect().readFrom(stream, range)) {
              if (!isHoled || each.sequence !== 3) yield each;
            }
          },
          ...changes,
        }),
      );
    const readBy = async (via: StreamLog) => {
      const found: number[] = [];
      await via.recover(head, ({ offset }) => found.push(offset));
      return found;
    };
    beforeEach(async () => {
      holes = 0;
      head = await own();
      for (const seq of [1, 2, 3]) head = headOf(await log.commit(head, busyRecord("s", seq)));
    });

    test.each([1, 2, Infinity])("of %s batches asks for it again, and reads on", async (most) => {
      expect(await readBy(holed(most))).toEqual([2, 3, 4]);
    });

    test("that no server has isn't served", async () => {
      const via = holed(Infinity, { read: async () => undefined });
      await expect(via.recover(head)).rejects.toMatchObject({
        code: "store_corrupt",
        message: expect.stringContaining("3 is missing"),
      });
      const kept = via.readKept(head, () => {});
      await expect(kept).rejects.toThrow(/lost 3/);
    });

    test("because it is trimmed meanwhile is tried again", async () => {
      const via = holed(0, {
        read: async () => undefined,
        async *readFrom(stream, range) {
          // The first batch has begun before the log is trimmed, and the others after that.
          const isFirst = holes++ === 0;
          for await (const each of servers.connect().readFrom(stream, range)) {
            if (each.sequence > 3 || (each.sequence < 3 && isFirst)) yield each;
          }
        },
      });
      const early = via.recover(head);
      await expect(early).rejects.toMatchObject({
        code: "store_unavailable",
        message: expect.stringContaining("begins at 4, and 3 is needed"),
      });
    });

    test("S3: leaves none out of what the log still has", async () => {
      const found: number[] = [];
      await holed(1).readKept(head, (_, offset) => void found.push(offset));
      expect(found).toEqual([2, 3, 4]);
    });

    test("has the records behind an offset as a whole", async () => {
      const found: number[] = [];
      const range = { after: 1, chain: await log.chainAt(head, 1), through: 4 };
      const read = holed(1).readRange(head, range, ({ offset }) => void found.push(offset));
      expect(await read).toBe("whole");
      expect(found).toEqual([2, 3, 4]);
    });
  });
});

describe("a message of others on the subject of marks", () => {
  let head: Head;
  const early = header("early", { lastSeq: 1, work: turn() });
  const addStrays = (count: number): void => {
    const subject = storedIn(head)[0]!.subject.replace(/[a-z]$/, "m");
    const stray = { subject, headers: {}, body: Buffer.from("?") };
    servers.change(nameOf(head), (all) => {
      for (let nth = 0; nth < count; nth++) {
        all.push({ ...stray, sequence: all.at(-1)!.sequence + 1 });
      }
    });
  };
  const takenBy = async (via: StreamLog) => {
    const taken = await take(via, 0, "pod-2");
    const found: number[] = [];
    const { busy } = await via.recover(taken, ({ offset }) => found.push(offset));
    return { taken, found, busy: busy.map(({ sessionId }) => sessionId) };
  };
  beforeEach(async () => {
    head = headOf(await log.commit(await own(), record({ headers: [early] })));
  });

  test.each([1, 100])(
    "O7: hides neither the last mark nor what is busy: %s of them",
    async (count) => {
      head = headOf(await log.mark(head, { archived: 1, busy: [] }));
      const archived = head.offset;
      head = headOf(await log.mark(head, { archived, busy: [early] }));
      await log.trim(head, archived);
      const late = headOf(await log.commit(head, busyRecord("late", 1)));
      head = late;
      addStrays(count);
      const { taken, found, busy } = await takenBy(another);
      expect(found).toEqual([late.offset]);
      expect(busy).toEqual(["early", "late"]);
      expect(another.lastMark(0)).toMatchObject({ archived });
      expect(warnings).toEqual([{ log: 0, strays: count }]);
      headOf(await another.commit(taken, busyRecord("late", 2)));
    },
  );

  test("O7: is looked past by a pod whose server is behind, and knows it as the last one there", async () => {
    addStrays(1);
    const stray = storedIn(head).at(-1)!;
    head = { ...(await takenBy(log)).taken };
    head = headOf(await log.mark(head, { archived: head.offset, busy: [early] }));
    await log.trim(head, head.offset);
    expect(storedIn(head)[0]!.sequence).toBeGreaterThan(stray.sequence);
    const real = servers.connect();
    const lastOn: StreamEngine["lastOn"] = async (stream, subject) =>
      subject === stray.subject ? stray : real.lastOn(stream, subject);
    const via = open({}, engineWith({ lastOn }));
    expect((await takenBy(via)).busy).toEqual(["early"]);
  });

  test("O7: lets a log without a mark be read from its beginning", async () => {
    addStrays(1);
    const { found, busy } = await takenBy(another);
    expect([found, busy]).toEqual([[2], ["early"]]);
  });

  test("O7: leaves a log that has lost its marks unserved, and is named", async () => {
    head = headOf(await log.mark(head, { archived: head.offset, busy: [early] }));
    head = headOf(await log.commit(head, busyRecord("late", 1)));
    addStrays(1);
    await servers.connect().purge(nameOf(head), head.offset);
    const taken = await take(another, 0, "pod-2");
    await expect(another.recover(taken)).rejects.toMatchObject({
      code: "store_corrupt",
      message: expect.stringMatching(/begins at 4 and has no mark, and message 5 in place of one/),
    });
  });

  test("holds up no other log where nothing else is left", async () => {
    addStrays(2);
    await servers.connect().purge(nameOf(head), head.offset + 1);
    const [seen, other] = await another.heads();
    const taking = another.take(seen!, { podId: "pod-2", host: null, recordId: "t" });
    await expect(taking).rejects.toMatchObject({
      code: "store_corrupt",
      message: expect.stringContaining(
        "message 4 isn't Flotilla's, nor is any before it down to 3",
      ),
    });
    const owner = { podId: "pod-2", host: null, recordId: fresh("take") };
    expect(await another.take(other!, owner)).toMatchObject({ logId: 1, term: 1 });
  });

  test("O7: isn't taken for the only one by a server that hasn't the last mark", async () => {
    head = headOf(await log.mark(head, { archived: head.offset, busy: [early] }));
    addStrays(1);
    const taken = await take(another, 0, "pod-2");
    const behind: StreamEngine["readFrom"] = (stream, { from }) =>
      servers.connect().readFrom(stream, { from, to: 2 });
    const via = open({}, engineWith({ readFrom: behind }));
    await expect(via.recover(taken)).rejects.toMatchObject({ code: "store_unavailable" });
  });

  test("O7: that looks like a mark and calls itself archived is no reason to skip what is before it", async () => {
    const chain = await log.chainAt(head, head.offset);
    head = headOf(await log.mark(head, { archived: head.offset + 1, busy: [], chain }));
    const taken = await take(another, 0, "pod-2");
    await expect(another.recover(taken)).rejects.toMatchObject({
      code: "store_corrupt",
      message: expect.stringContaining("mark 3 is below what it calls archived"),
    });
  });
});

describe("a stream that an operator has touched", () => {
  const taker = { podId: "pod-2", host: null, recordId: "t" };

  test("and purged isn't served", async () => {
    const head = await own();
    await servers.connect().purge(nameOf(head), head.offset + 1);
    const [seen, other] = await another.heads();
    await expect(another.take(seen!, taker)).rejects.toMatchObject({
      code: "store_corrupt",
      message: expect.stringContaining("purged by hand"),
    });
    // The logs beside it are taken as ever.
    expect(await another.take(other!, taker)).toMatchObject({ logId: 1, term: 1 });
  });

  test("and deleted isn't served, and isn't made anew", async () => {
    const head = await own();
    servers.remove(nameOf(head));
    const [seen] = await another.heads();
    await expect(another.take(seen!, taker)).rejects.toMatchObject({ code: "store_missing" });
    expect(await settled(log.commit(head, messageRecord("s", 1)))).toMatchObject({
      code: "unknown_outcome",
    });
    expect(servers.names).not.toContain(nameOf(head));
  });

  test("and set back stops its owner, once that is proven by a message behind its end", async () => {
    let head = await own();
    for (const seq of [1, 2, 3]) head = headOf(await log.commit(head, messageRecord("s", seq)));
    servers.change(nameOf(head), (all) => void all.splice(-2));
    const sent = messageRecord("s", 4);
    for (let tries = 0; tries < 3; tries++) {
      expect(await settled(log.commit(head, sent))).toMatchObject({
        code: "store_corrupt",
        message: expect.stringContaining("lost messages"),
      });
    }
    expect(storedIn(head).map(({ subject }) => subject.at(-1))).toEqual(["o", "r", "o"]);
    expect(log.goneBackTo(head)).toBe(2);
  });

  test("S2: and set back by one stops its owner, though the proof of that isn't answered", async () => {
    let head = await own();
    for (const seq of [1, 2]) head = headOf(await log.commit(head, messageRecord("s", seq)));
    const real = servers.connect();
    let unanswered = 2;
    const via = open(
      {},
      engineWith({
        async publish(message, condition) {
          const answer = await real.publish(message, condition);
          const isLost = message.subject.endsWith(".o") && unanswered-- > 0;
          return isLost ? { type: "silent", why: "no answer in time" } : answer;
        },
      }),
    );
    await via.recover(head);
    head = headOf(await via.commit(head, messageRecord("s", 3)));
    servers.change(nameOf(head), (all) => void all.splice(-1));
    const sent = messageRecord("s", 4);
    expect(await settled(via.commit(head, sent))).toMatchObject({ code: "unknown_outcome" });
    // The proof has the place of the record that was lost, so the next one would fit behind it.
    expect(await settled(via.commit(head, sent))).toMatchObject({ code: "store_corrupt" });
    expect(storedIn(head).map(({ subject }) => subject.at(-1))).toEqual(["o", "r", "r", "o"]);
    expect(via.goneBackTo(head)).toBe(3);
  });

  test("and made anew under its name stops its owner", async () => {
    let head = await own();
    head = headOf(await log.commit(head, messageRecord("s", 1)));
    const { settings } = (await servers.connect().state(nameOf(head)))!;
    servers.remove(nameOf(head));
    await servers.connect().create(settings);
    const sent = messageRecord("s", 2);
    expect(await settled(log.commit(head, sent))).toMatchObject({ code: "store_corrupt" });
    expect(storedIn(head).map(({ subject }) => subject.at(-1))).toEqual(["o"]);
  });

  test("isn't taken for one that was set back because a deposed leader names an old end", async () => {
    let head = await own();
    for (const seq of [1, 2]) head = headOf(await log.commit(head, messageRecord("s", seq)));
    const real = servers.connect();
    let isDeposed = true;
    const via = open(
      {},
      engineWith({
        publish: (message, condition) =>
          isDeposed && message.subject.endsWith(".r")
            ? Promise.resolve({ type: "wrong_last", lastSequence: 1 })
            : real.publish(message, condition),
      }),
    );
    await via.recover(head);
    const sent = messageRecord("s", 3);
    expect(await settled(via.commit(head, sent))).toMatchObject({ code: "unknown_outcome" });
    isDeposed = false;
    expect(await via.commit(head, sent)).toMatchObject({ type: "committed" });
    expect(storedIn(head).map(({ subject }) => subject.at(-1))).toEqual(["o", "r", "r", "r"]);
  });
});

describe("a log that has lost its end", () => {
  const content = (from: number, records: readonly (readonly [number, LogRecord])[]) => ({
    from,
    through: records.at(-1)?.[0] ?? from - 1,
    recordAt: async (offset: number) => new Map(records).get(offset),
    busy: [],
    follows: { incarnations: ["before"], archived: 0 },
  });
  const sent = [messageRecord("s", 1), messageRecord("s", 2), messageRecord("s", 3)];
  const placed = sent.map((each, at) => [at + 2, each] as const);
  let head: Head;
  beforeEach(async () => {
    head = await own();
    for (const each of sent) head = headOf(await log.commit(head, each));
    servers.change(nameOf(head), (all) => void all.splice(-2));
  });
  const recovered = async (via: StreamLog, taken: Head) => {
    const found: ReplayedRecord[] = [];
    await via.recover(taken, (each) => found.push(each));
    return found.map(({ offset, record: { recordId } }) => [offset, recordId]);
  };

  test("S2: isn't taken for another pod's where a server still names a life before", async () => {
    await settled(log.commit(head, messageRecord("s", 4)));
    const real = servers.connect();
    const meta = `FLOTILLA_${deployment.namespace}_META`;
    let isBehind = false;
    let before: Awaited<ReturnType<StreamEngine["lastOn"]>>;
    const via = open(
      {},
      engineWith({
        async lastOn(stream, subject) {
          const found = await real.lastOn(stream, subject);
          if (stream !== meta) return found;
          before ??= found;
          const seen = isBehind ? before : found;
          isBehind = false;
          return seen;
        },
      }),
    );
    await via.heads();
    expect(await settled(log.renew(head, content(2, placed)))).toBe("made");
    const [next] = await via.heads();
    const lives = { incarnations: [head.incarnation, next!.incarnation], archived: 0 };
    isBehind = true;
    const renewing = via.renew(next!, { ...content(2, placed), follows: lives });
    expect(await settled(renewing)).toBe("made");
  });

  test("is seen in its new stream once the meta message is read, and its old head meanwhile", async () => {
    let isSilent = false;
    const real = servers.connect();
    const silent: StreamEngine["lastOn"] = (stream, subject) =>
      isSilent && stream === metaStreamName(deployment)
        ? new Promise<never>(() => {})
        : real.lastOn(stream, subject);
    const via = open({}, engineWith({ lastOn: silent }));
    const before = await via.heads();
    await settled(log.commit(head, messageRecord("s", 4)));
    expect(await settled(log.renew(head, content(2, placed)))).toBe("made");
    const other = await take(log, 1);
    isSilent = true;
    const reading = via.heads();
    await clock.advance(250);
    const [old, second] = await reading;
    expect(old).toMatchObject({ incarnation: before[0]!.incarnation });
    expect(second).toEqual(other);
    isSilent = false;
    // It isn't taken there.
    const owner = { podId: "pod-2", host: null, recordId: fresh("take") };
    expect(await settled(via.take(old!, owner))).toBeUndefined();
    expect((await via.heads())[0]).toMatchObject({ owner: "pod-1", offset: head.offset + 1 });
  });

  test("S2: goes on in a new stream, with each record at its offset", async () => {
    await settled(log.commit(head, messageRecord("s", 4)));
    expect(await settled(log.renew(head, content(2, placed)))).toBe("made");
    const [next] = await another.heads();
    expect(next).toMatchObject({ owner: "pod-1", term: head.term, offset: head.offset + 1 });
    expect(next!.incarnation).not.toBe(head.incarnation);
    const taken = await takeUntilKnown(another, "pod-2");
    expect(await recovered(another, taken)).toEqual(
      placed.map(([offset, { recordId }]) => [offset, recordId]),
    );
    expect(await log.commit(head, messageRecord("s", 4))).toEqual({ type: "fenced" });
    expect(await another.lifeOf(taken)).toMatchObject({ follows: { archived: 0 } });
    // The old stream stays as it is.
    expect(storedIn(head).length).toBeGreaterThan(2);
  });

  test.each(troubles)(
    "S2: is whole in its new stream, though a message meets: %s",
    async (trouble) => {
      let isFirst = true;
      const changed = content(2, placed);
      const recordAt = async (offset: number) => {
        if (offset === 3 && isFirst) {
          isFirst = false;
          servers.next = trouble;
          clock.after(1_000, () => void servers.land());
        }
        return changed.recordAt(offset);
      };
      await settled(log.commit(head, messageRecord("s", 4)));
      expect(await settled(log.renew(head, { ...changed, recordAt }))).toBe("made");
      const taken = await takeUntilKnown(another, "pod-2");
      expect(await recovered(another, taken)).toHaveLength(3);
    },
  );

  test("O7: has the busy sessions of its life before, though a server knows no mark of the new stream", async () => {
    await settled(log.commit(head, messageRecord("s", 4)));
    const busy = [header("busy", { lastSeq: 1, work: turn({ epoch: 1 }) })];
    expect(await settled(log.renew(head, { ...content(2, placed), busy }))).toBe("made");
    const real = servers.connect();
    const lastOn: StreamEngine["lastOn"] = async (stream, subject) =>
      subject.endsWith(".m") ? undefined : real.lastOn(stream, subject);
    const via = open({}, engineWith({ lastOn }));
    const taken = await takeUntilKnown(via, "pod-2");
    expect((await via.recover(taken)).busy).toEqual(busy);
  });

  test("O4: has one next life, though a pod that missed its owner has taken it meanwhile", async () => {
    const changed = content(2, placed);
    let byOther: Head | undefined;
    const recordAt = async (offset: number) => {
      if (!byOther) {
        // The owner stands still here, and another pod finds that it has left the stream.
        const seen = (await another.heads())[0]!;
        byOther = await another.take(seen, { podId: "pod-2", host: null, recordId: "t" });
        await another.recover(byOther!);
        headOf(await another.commit(byOther!, messageRecord("s", 2)));
      }
      return changed.recordAt(offset);
    };
    await settled(log.commit(head, messageRecord("s", 4)));
    expect(await settled(log.renew(head, { ...changed, recordAt }))).toBe("fenced");
    const [now] = await another.heads();
    expect(now).toMatchObject({ incarnation: head.incarnation, owner: "pod-2" });
  });

  test("isn't left by an owner from which it was taken", async () => {
    await takeUntilKnown(another, "pod-2");
    expect(await settled(log.renew(head, content(2, placed)))).toBe("fenced");
  });

  test("two at once both get their next life", async () => {
    let other = await take(log, 1);
    await log.recover(other);
    other = headOf(await log.commit(other, messageRecord("t", 1)));
    servers.change(nameOf(other), (all) => void all.splice(-1));
    await settled(log.commit(head, messageRecord("s", 4)));
    await settled(log.commit(other, messageRecord("t", 2)));
    servers.troubles = { ...noStreamTroubles, delayMs: 20 };
    const both = [log.renew(head, content(2, placed)), log.renew(other, content(2, []))];
    expect(await settled(Promise.all(both))).toEqual(["made", "made"]);
    servers.troubles = noStreamTroubles;
    const incarnations = (await another.heads()).map(({ incarnation }) => incarnation);
    expect(incarnations).not.toContain(head.incarnation);
    expect(incarnations).not.toContain(other.incarnation);
  });

  test("and was left by an owner that is gone is taken where it ends, loudly", async () => {
    await settled(log.commit(head, messageRecord("s", 4)));
    const taken = await takeUntilKnown(another, "pod-2");
    expect(taken).toMatchObject({ incarnation: head.incarnation, term: head.term + 1 });
    expect(errors).toEqual([{ log: 0, behind: taken.offset - 1 }]);
    expect(await recovered(another, taken)).toHaveLength(1);
    expect(await settled(log.renew(head, content(2, placed)))).toBe("fenced");
  });
});

test("a log without a leader keeps the head that it had, so that others can be taken", async () => {
  const head = await own();
  let isAway = false;
  const away: StreamEngine["state"] = (stream) =>
    isAway && stream === nameOf(head)
      ? Promise.reject(new FlotillaError("store_unavailable", "no leader"))
      : servers.connect().state(stream);
  const via = open({}, engineWith({ state: away }));
  isAway = true;
  await expect(via.heads()).rejects.toMatchObject({ code: "store_unavailable" });
  isAway = false;
  const before = await via.heads();
  isAway = true;
  headOf(await log.commit(head, messageRecord("s", 1)));
  expect(await via.heads()).toEqual(before);
  const owner = { podId: "pod-2", host: null, recordId: fresh("take") };
  expect(await via.take(before[1]!, owner)).toMatchObject({ logId: 1, term: 1 });
  isAway = false;
  expect(await via.take(before[0]!, owner)).toBeUndefined();
});

test("a log whose servers don't answer holds up the heads of no other", async () => {
  const head = await own();
  let isSilent = false;
  const silent: StreamEngine["state"] = (stream) =>
    isSilent && stream === nameOf(head)
      ? new Promise<never>(() => {})
      : servers.connect().state(stream);
  const via = open({}, engineWith({ state: silent }));
  const before = await via.heads();
  isSilent = true;
  const other = await take(log, 1);
  const reading = via.heads();
  await clock.advance(250);
  expect(await reading).toEqual([before[0], other]);
});

test("a log whose servers haven't answered for a while isn't waited for by a take, until they do", async () => {
  const head = await own();
  let isSilent = false;
  const silent: StreamEngine["state"] = async (stream) => {
    if (isSilent && stream === nameOf(head)) return new Promise<never>(() => {});
    return servers.connect().state(stream);
  };
  const via = open({}, engineWith({ state: silent }));
  const owner = { podId: "pod-2", host: null, recordId: fresh("take") };
  const look = async () => {
    const looking = via.heads();
    await clock.advance(250);
    return (await looking)[0]!;
  };
  const before = await look();
  isSilent = true;
  await look();
  await clock.advance(1_000);
  const taking = () => via.take(before, owner);
  await expect(taking()).rejects.toMatchObject({ code: "store_unavailable" });
  isSilent = false;
  // The pod reads no heads meanwhile. What was asked in vain is over first.
  await clock.advance(250);
  await expect(taking()).rejects.toMatchObject({ code: "store_unavailable" });
  await clock.advance(250);
  expect(await taking()).toMatchObject({ owner: "pod-2" });
});

describe("a log that fills", () => {
  beforeEach(async () => {
    log = open({ namespace: "small", maxLogBytes: 20_000 });
    another = open({ namespace: "small", maxLogBytes: 20_000 });
    await log.create(1);
  });

  test("refuses records, takes owners and marks, and takes records again once it is trimmed", async () => {
    let head = await own();
    let result: CommitResult | FlotillaError;
    do {
      result = await settled(log.commit(head, messageRecord("s", head.offset)));
      if (!hasCode(result, "overloaded")) head = headOf(result as CommitResult);
    } while (!hasCode(result, "overloaded"));
    expect(head.offset).toBeGreaterThan(10);
    head = await take(another, 0, "pod-2");
    await another.recover(head);
    head = headOf(await another.mark(head, { archived: head.offset, busy: [] }));
    await another.trim(head, head.offset);
    headOf(await another.commit(head, messageRecord("s", 99)));
  });

  test("is trimmed only up to what its last stored mark calls archived", async () => {
    let head = await own();
    for (const seq of [1, 2, 3, 4]) head = headOf(await log.commit(head, messageRecord("s", seq)));
    const all = () => servers.stored(`FLOTILLA_small_0_${head.incarnation}`);
    await log.trim(head, head.offset);
    expect(all()[0]!.sequence).toBe(1);
    head = headOf(await log.mark(head, { archived: 3, busy: [] }));
    await log.trim(head, head.offset);
    expect(all()[0]!.sequence).toBe(3);
  });
});

describe("a start", () => {
  test("O4: of pods that make logs at once, one decides which", async () => {
    const both = [open({ namespace: "race" }), open({ namespace: "race" })];
    servers.troubles = { ...noStreamTroubles, delayMs: 5 };
    await settled(Promise.all([both[0]!.create(3), both[1]!.create(5)]));
    servers.troubles = noStreamTroubles;
    const [one, other] = await Promise.all(both.map((each) => each.heads()));
    expect(one).toEqual(other);
    expect([3, 5]).toContain(one!.length);
    expect(servers.names.filter((each) => each.startsWith("FLOTILLA_race_"))).toHaveLength(
      one!.length + 1,
    );
  });

  test("goes on with logs that another pod has only prepared", async () => {
    const engine = engineWith({
      create: async (settings) =>
        settings.name.includes("_1_")
          ? { type: "refused", code: 10047, why: "insufficient storage resources available" }
          : servers.connect().create(settings),
    });
    await expect(open({ namespace: "half" }, engine).create(2)).rejects.toMatchObject({
      code: "unsupported",
      message: expect.stringContaining("raise max_file_store"),
    });
    const after = open({ namespace: "half" });
    expect(await after.heads()).toEqual([]);
    await after.create(7);
    expect(await after.heads()).toHaveLength(2);
  });

  test("is refused on streams of another deployment", async () => {
    for (const call of [(via: StreamLog) => via.heads(), (via: StreamLog) => via.create(2)]) {
      await expect(call(open({ clusterId: "c2" }))).rejects.toMatchObject({ code: "unsupported" });
    }
  });

  test("is refused on streams that were changed by hand or are gone", async () => {
    const lives = (await log.heads()).map((head) => ({ ...head, firstSequence: 1 }));
    const check = () => checkStreams(servers.connect(), deployment, lives);
    await check();
    const name = streamName(deployment, lives[1]!);
    servers.change(name, { replicas: 1 });
    await expect(check()).rejects.toThrow(/replicas is 1, not 3/);
    servers.remove(name);
    await expect(check()).rejects.toThrow(/is gone/);
  });

  test("is refused on servers that don't fit", async () => {
    const wanted = { replicas: 3, durability: "flushed" } as const;
    const check = (haveLogs = false) =>
      checkServers(servers.connect(), wanted, { haveLogs: async () => haveLogs });
    expect(await check()).toEqual(servers.facts);
    servers.facts = { ...servers.facts, version: "2.10.0" };
    await expect(check(true)).rejects.toMatchObject({ code: "unsupported" });
  });

  test("is made only once every server says that it flushes, and goes on beside one that is gone", async () => {
    const wanted = { replicas: 3, durability: "flushed" } as const;
    const check = (haveLogs: boolean) =>
      checkServers(servers.connect(), wanted, { haveLogs: async () => haveLogs });
    servers.facts = { ...servers.facts, flushes: [true, true], silent: ["n3 says nothing"] };
    await expect(check(false)).rejects.toThrow("n3 says nothing");
    expect(await check(true)).toEqual(servers.facts);
    servers.facts = { ...servers.facts, flushes: [true, false] };
    await expect(check(true)).rejects.toThrow("before it flushes");
    servers.facts = { ...servers.facts, flushes: [true], silent: ["n2 is silent", "n3"] };
    await expect(check(true)).rejects.toThrow("n2 is silent");
  });
});
