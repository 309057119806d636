import { beforeEach, describe, expect, test } from "vitest";
import { type MovableClock, movableClock, settledBy } from "../../base/contract/movable-clock.ts";
import { sleep } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import { uuidv7 } from "../../base/ids.ts";
import { silentLogger } from "../../base/log.ts";
import { seededRandom } from "../../base/random.ts";
import {
  busyRecord,
  headOf,
  messageRecord,
  take,
} from "../../sessions/contract/journal-harness.ts";
import {
  noStreamTroubles,
  type SimulatedStreams,
  simulateStreams,
} from "../../sessions/contract/simulated-streams.ts";
import { createArchivedJournal } from "../../sessions/log/archive/journal.ts";
import { createStreamLog } from "../../sessions/log/jetstream/log.ts";
import type { PlaceAnswer, PlaceQuestion } from "../../sessions/log/place-topic.ts";
import { logPlaceOf } from "../../sessions/log/place.ts";
import type { Head } from "../../sessions/log/journal.ts";
import { createSqlJournal } from "../../sessions/log/sql-journal.ts";
import { memoryKind } from "../../store/contract/kinds.ts";
import type { Database } from "../../store/database.ts";
import { migrate } from "../../store/migrate.ts";
import { sql, table } from "../../store/sql.ts";
import { moveLogs, type MoveLogsParts, planMove } from "./move-logs.ts";

const random = seededRandom(3);

let clock: MovableClock;
let servers: SimulatedStreams;
let database: Database;
let clusterId: string;
let maxRecordBytes: number;
/** What each pod answers. Those that have no entry aren't heard of. */
let pods: Map<string, (question: PlaceQuestion) => PlaceAnswer>;
let asked: { readonly podId: string; readonly step: PlaceQuestion["step"] }[];

beforeEach(async () => {
  clock = movableClock();
  servers = simulateStreams({ clock, random });
  ({ database } = await memoryKind.open());
  await migrate(database);
  ({ clusterId } = await logPlaceOf(database));
  maxRecordBytes = 100_000;
  pods = new Map();
  asked = [];
});

const following = (): PlaceAnswer => ({ release: "1.0.0", hasLeft: true });

function connect(to: "nats" | "sql" = "nats", logs = 1) {
  const shared = { clock, random, ids: uuidv7(clock, random), log: silentLogger, database };
  const deployment = { namespace: "test", clusterId, replicas: 3, maxLogBytes: 1_000_000 } as const;
  const engine = servers.connect();
  const stream = createStreamLog({
    ...shared,
    engine,
    deployment,
    maxRecordBytes,
    seesMoving: true,
  });
  const parts: MoveLogsParts = {
    ...shared,
    stream,
    clusterId,
    to,
    logs,
    host: null,
    isGone: () => false,
    bus: {
      async request(podId, _topic, body) {
        const question = body as unknown as PlaceQuestion;
        asked.push({ podId, step: question.step });
        const answer = pods.get(podId);
        if (!answer) throw new FlotillaError("unavailable", "nobody answers");
        return answer(question) as never;
      },
    },
  };
  return { ...parts, engine };
}

const settled = <Value>(call: Promise<Value>) => settledBy(clock, call);

const move = (to: "nats" | "sql", logs?: number) => settled(moveLogs(connect(to, logs)));
const seqs = (count: number) => Array.from({ length: count }, (_, nth) => nth + 1);
const place = async () => (await logPlaceOf(database)).place;
const archivedSeqs = async (): Promise<number[]> =>
  (
    await database.read(
      sql`select seq from ${table("message")} where session_id = 's' order by seq`,
    )
  ).map((row) => Number(row["seq"]));

/** A pod that owns the only log, which is on streams. */
async function ownOnStreams(podId = "pod-1") {
  const parts = connect();
  const journal = createArchivedJournal({ ...parts, bus: undefined });
  let head = await take(journal, 0, podId);
  await settled(journal.recover(head));
  const commit = async (...seqs: number[]) => {
    for (const seq of seqs) {
      head = headOf(await settled(journal.commit(head, messageRecord("s", seq))));
    }
  };
  /** The servers lose the last messages of the log, and take no new stream. */
  const lose = (messages: number) => {
    const name = servers.names.find((each) => each.startsWith("FLOTILLA_test_0_"))!;
    servers.change(name, (all) => void all.splice(-messages));
    servers.refusal = { type: "refused", code: 10_047, why: "no storage is left" };
  };
  return {
    journal,
    commit,
    lose,
    tryCommit: (seq: number) =>
      settled(journal.commit(head, messageRecord("s", seq))).catch((error: unknown) => error),
  };
}

describe("logs that go back to the database", () => {
  test("S2: do so though servers have lost the end of one and its owner has left its stream, with all that the database has", async () => {
    await move("nats");
    const owner = await ownOnStreams();
    await owner.commit(...seqs(20));
    await owner.journal.flush();
    owner.lose(15);
    await owner.tryCommit(21);
    expect(await move("sql")).toMatchObject({ to: "sql", already: false });
    expect(await place()).toBe("sql");
    expect(await archivedSeqs()).toEqual(seqs(20));
    const next = createSqlJournal(connect());
    const head = await take(next, 0, "pod-2");
    headOf(await next.commit(head, messageRecord("s", 21)));
    expect(await archivedSeqs()).toEqual(seqs(21));
  });

  test("S2: wait for a pod that alone has what servers have lost, until the database has it too", async () => {
    await move("nats");
    const owner = await ownOnStreams();
    await owner.commit(...seqs(20));
    owner.lose(15);
    await owner.tryCommit(21);
    expect(owner.journal.state().lost).toBe(1);
    let lates = 0;
    pods.set("pod-1", ({ step }) => {
      if (step === "leave" && ++lates >= 40) void owner.journal.flush();
      if (step === "leave" && owner.journal.state().lost > 0) {
        throw new FlotillaError("conflict", "has messages that servers have lost");
      }
      return following();
    });
    expect(await move("sql")).toMatchObject({ to: "sql" });
    expect(lates).toBeGreaterThan(40);
    expect(await archivedSeqs()).toEqual(seqs(20));
  });

  test("O7: wait for an owner that doesn't reach the database, which hasn't heard of it for long", async () => {
    await move("nats");
    const owner = await ownOnStreams();
    await owner.commit(1);
    let answers = 0;
    pods.set("pod-1", ({ step }) => ({
      release: "1.0.0",
      hasLeft: step === "leave" && ++answers > 5,
    }));
    expect(await settled(planMove(connect("sql")))).toMatchObject({ pods: ["pod-1"] });
    await move("sql");
    expect(asked.map(({ step }) => step)).toContain("ask");
    expect(answers).toBe(6);
  });

  test("refuse an owner that can't follow, and pass over one that was killed", async () => {
    await move("nats");
    await (await ownOnStreams()).commit(1);
    pods.set("pod-1", () => {
      throw new FlotillaError("timeout", "no answer");
    });
    await expect(move("sql")).rejects.toThrow(/the pod pod-1 doesn't answer over NATS/);
    expect(await place()).toBe("nats");
    pods.clear();
    await move("sql");
    expect(await archivedSeqs()).toEqual([1]);
  });

  test("are archived a few at a time, however many there are", async () => {
    await move("nats", 16);
    const parts = connect("sql", 16);
    let [underWay, most] = [0, 0];
    const { stream } = parts;
    const recover: typeof stream.recover = async (...args) => {
      most = Math.max(most, ++underWay);
      return stream.recover(...args).finally(() => underWay--);
    };
    const moved = await settled(moveLogs({ ...parts, stream: { ...stream, recover } }));
    expect(moved.logs).toBe(16);
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThan(8);
  });
});

describe("logs under one incarnation, as those of a store that was one file", () => {
  beforeEach(async () => {
    await createSqlJournal(connect()).create(4);
    await database.write([sql`update ${table("session_log")} set incarnation = 'of-the-file'`]);
  });

  test("go to streams and back, each from where it was", async () => {
    for (const to of ["nats", "sql", "nats", "sql"] as const) {
      expect(await move(to)).toMatchObject({ logs: 4, already: false });
      expect(await place()).toBe(to);
      const { stream } = connect();
      if (to === "sql") continue;
      // Streams are known by then, as they are where a pod has read them before.
      for (let looks = 0; looks < 2; looks++) {
        const heads = await settled(stream.heads());
        expect(heads.map(({ logId }) => logId)).toEqual([0, 1, 2, 3]);
      }
    }
    const rows = await database.read(
      sql`select log_id from ${table("session_log")} order by log_id`,
    );
    expect(rows.map((row) => Number(row["log_id"]))).toEqual([0, 1, 2, 3]);
  });

  test("S2: are written on where servers have lost the end of another one", async () => {
    await move("nats");
    const { stream } = connect();
    const heads: Head[] = [];
    for (const logId of [0, 1]) {
      let head = await take(stream, logId, "pod-1");
      await settled(stream.recover(head));
      for (const seq of [1, 2, 3]) {
        head = headOf(await settled(stream.commit(head, messageRecord(`s${logId}`, seq))));
      }
      heads.push(head);
    }
    const name = servers.names.find((each) => each.startsWith("FLOTILLA_test_0_"))!;
    servers.change(name, (all) => void all.splice(-2));
    await expect(settled(stream.commit(heads[0]!, messageRecord("s0", 4)))).rejects.toBeInstanceOf(
      FlotillaError,
    );
    expect(stream.goneBackTo(heads[0]!)).toBeDefined();
    expect(stream.goneBackTo(heads[1]!)).toBeUndefined();
    await settled(stream.commit(heads[1]!, messageRecord("s1", 4)));
  });
});

describe("logs that go to streams", () => {
  test("are held by no timer once they are there, though a claim was being renewed at the end", async () => {
    const parts = connect();
    const { stream } = parts;
    const answered = Promise.withResolvers<void>();
    let isHeld = false;
    let held = 0;
    const slow: Database = {
      ...database,
      async write(statements, options) {
        if (isHeld && ++held > 0) await answered.promise;
        return database.write(statements, options);
      },
    };
    const prepare: typeof stream.streams.prepare = async (lives) => {
      isHeld = true;
      await sleep(clock, 11_000);
      isHeld = false;
      return stream.streams.prepare(lives);
    };
    const streams = { ...stream.streams, prepare };
    await settled(moveLogs({ ...parts, database: slow, stream: { ...stream, streams } }));
    expect(held).toBe(1);
    answered.resolve();
    await clock.advance(60_000);
    expect(clock.timers).toBe(0);
  });

  test("wait for servers that are slow to say whether they have any, and are refused if they go on being so", async () => {
    const unread = (share: number) => (servers.troubles = { ...noStreamTroubles, unread: share });
    unread(1);
    const moving = moveLogs(connect());
    await clock.advance(20_000);
    unread(0);
    expect(await settled(moving)).toMatchObject({ to: "nats", already: false });
    unread(1);
    const beganMs = clock.monotonic();
    await expect(move("sql")).rejects.toThrow(/the servers didn't answer/);
    expect(clock.monotonic() - beganMs).toBeGreaterThanOrEqual(30_000);
    expect(clock.monotonic() - beganMs).toBeLessThan(45_000);
    unread(0);
    expect(await settled(planMove(connect("sql")))).toMatchObject({ step: "close" });
  });

  test("stay where they are if the sessions at work would be too much for a message", async () => {
    const journal = createSqlJournal(connect());
    await journal.create(1);
    let head = await take(journal, 0, "pod-1");
    for (let nth = 1; nth <= 20; nth++) {
      head = headOf(await journal.commit(head, busyRecord(`busy-${nth}`, 1)));
    }
    maxRecordBytes = 4_000;
    const refused = /20 sessions of log 0 are at work, .* raise max_payload of the NATS servers/;
    await expect(settled(planMove(connect("nats")))).rejects.toThrow(refused);
    await expect(move("nats")).rejects.toThrow(refused);
    expect(await place()).toBe("sql");
    expect(servers.names).toEqual([]);
    maxRecordBytes = 100_000;
    await move("nats");
    const owner = createArchivedJournal({ ...connect(), bus: undefined });
    const taken = await take(owner, 0, "pod-2");
    expect((await settled(owner.recover(taken))).busy).toHaveLength(20);
  });

  test("are said to move only once servers have room for their streams and let them be written", async () => {
    servers.refusal = { type: "refused", code: 10_047, why: "no storage is left" };
    await expect(move("nats")).rejects.toThrow(/have no storage left/);
    servers.refusal = undefined;
    const { engine, ...parts } = connect();
    const deployment = { namespace: "test", clusterId, replicas: 3, maxLogBytes: 1e6 } as const;
    const stream = createStreamLog({
      ...parts,
      deployment,
      maxRecordBytes,
      seesMoving: true,
      engine: {
        ...engine,
        async publish(message, condition) {
          const mayNot = `publish to ${message.subject}`;
          if (message.subject.endsWith(".m")) return { type: "silent", why: "no right", mayNot };
          return engine.publish(message, condition);
        },
      },
    });
    await expect(settled(moveLogs({ ...parts, stream }))).rejects.toThrow(
      /may not publish to .*\.m: allow it what `flotilla cluster permissions` prints/,
    );
    expect(await stream.streams.state()).toBeUndefined();
    expect(await place()).toBe("sql");
    await move("nats");
    expect(await place()).toBe("nats");
  });

  test("O7: are left alone by a promotion that wakes up once another has finished and pods have them", async () => {
    const parts = connect();
    const { stream } = parts;
    const woken = Promise.withResolvers<void>();
    const paused = Promise.withResolvers<void>();
    let heads = 0;
    const late = moveLogs({
      ...parts,
      host: "paused",
      stream: {
        ...stream,
        // Right before it looks where the log on streams ends, to store the first mark there.
        async heads() {
          if (++heads === 1) {
            paused.resolve();
            await woken.promise;
          }
          return stream.heads();
        },
      },
    }).catch((error: unknown) => error);
    await settled(paused.promise);
    expect(await place()).toBe("nats");
    await settled(moveLogs({ ...connect(), isGone: () => true }));
    const owner = await ownOnStreams();
    await owner.commit(1);
    woken.resolve();
    expect(await settled(late)).toMatchObject({ code: "conflict" });
    await owner.commit(2);
    await owner.journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2]);
  });
});
