import { beforeEach, describe, expect, test } from "vitest";
import {
  type MovableClock,
  movableClock,
  settledBy,
} from "../../../base/contract/movable-clock.ts";
import { FlotillaError } from "../../../base/errors.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { silentLogger } from "../../../base/log.ts";
import { seededRandom } from "../../../base/random.ts";
import { memoryKind } from "../../../store/contract/kinds.ts";
import type { Database } from "../../../store/database.ts";
import { migrate } from "../../../store/migrate.ts";
import { busyRecord, headOf, messageRecord, take } from "../../contract/journal-harness.ts";
import { type SimulatedStreams, simulateStreams } from "../../contract/simulated-streams.ts";
import { createStreamLog } from "../jetstream/log.ts";
import { streamName } from "../jetstream/streams.ts";
import type { Head, LogRecord } from "../journal.ts";
import { type ArchivedJournal, createArchivedJournal } from "./journal.ts";
import { placeOnStreams } from "../place.ts";

const random = seededRandom(3);
const deployment = {
  namespace: "test",
  clusterId: "c1",
  replicas: 3,
  maxLogBytes: 1_000_000,
} as const;
const largeBacklogBytes = 4_000;

let clock: MovableClock;
let servers: SimulatedStreams;
let rows: Database;
let isAway: boolean;
beforeEach(async () => {
  clock = movableClock();
  servers = simulateStreams({ clock, random });
  ({ database: rows } = await memoryKind.open());
  await migrate(rows);
  await placeOnStreams(rows);
  isAway = false;
});

/** A pod, and which messages it reads to replay a log. */
function open(standbyFor?: () => readonly Head[]) {
  const reads: { from: number; to: number }[] = [];
  const engine = servers.connect();
  const readFrom: typeof engine.readFrom = (stream, range) => {
    reads.push(range);
    return engine.readFrom(stream, range);
  };
  const whenThere = async <Value>(ask: () => Promise<Value>): Promise<Value> => {
    if (isAway) throw new FlotillaError("store_unavailable", "the database is away");
    return ask();
  };
  const database: Database = {
    ...rows,
    read: (...args) => whenThere(() => rows.read(...args)),
    write: (...args) => whenThere(() => rows.write(...args)),
  };
  const parts = { clock, random, ids: uuidv7(clock, random), log: silentLogger };
  const stream = createStreamLog({
    ...parts,
    engine: { ...engine, readFrom },
    deployment,
    maxRecordBytes: 100_000,
  });
  const journal = createArchivedJournal({
    ...parts,
    stream,
    database,
    largeBacklogBytes,
    standbyFor,
  });
  return { journal, reads };
}

/** An owner of the only log, and a pod that stands by. */
async function ownerAndNext() {
  const owner = open();
  await owner.journal.create(1);
  let head = await take(owner.journal, 0, "pod-1");
  await owner.journal.recover(head);
  const next = open(() => (owner.journal.backlogged().length > 0 ? [head] : []));
  next.journal.start();
  const commit = async (record: LogRecord): Promise<void> => {
    head = headOf(await owner.journal.commit(head, record));
  };
  return {
    owner,
    next,
    commit,
    get head() {
      return head;
    },
  };
}

const takeOver = async (journal: ArchivedJournal) => {
  const taken = await take(journal, 0, "pod-2");
  return { taken, ...(await journal.recover(taken)) };
};

async function seqs(journal: ArchivedJournal): Promise<number[]> {
  const reading = journal.entries("s", { after: 0, limit: 1_000 });
  reading.catch(() => {});
  await clock.advance(50);
  return (await reading).map(({ seq }) => seq);
}
const upTo = (last: number) => Array.from({ length: last }, (_, nth) => nth + 1);

describe("the pod that is next to take a log", () => {
  test("reads along once much of it isn't archived, and only the rest when it takes it", async () => {
    const scene = await ownerAndNext();
    const { next, commit } = scene;
    isAway = true;
    await commit(busyRecord("old", 1));
    await commit(messageRecord("s", 1));
    await clock.advance(3_000);
    expect(next.reads).toEqual([]);
    for (let seq = 2; seq <= 20; seq++) await commit(messageRecord("s", seq));
    await commit(busyRecord("busy", 1));
    await clock.advance(2_000);
    const read = scene.head.offset;
    for (let seq = 21; seq <= 23; seq++) await commit(messageRecord("s", seq));
    next.reads.length = 0;
    const { taken, busy } = await takeOver(next.journal);
    expect(next.reads).toEqual([{ from: read + 1, to: taken.offset }]);
    expect(busy.map(({ sessionId }) => sessionId).toSorted()).toEqual(["busy", "old"]);
    isAway = false;
    expect(await seqs(next.journal)).toEqual(upTo(23));
    await next.journal.flush();
    await next.journal.flush();
    expect(next.journal.state().unarchivedEntries).toBe(0);
    expect(await seqs(next.journal)).toEqual(upTo(23));
    expect(next.reads).toHaveLength(1);
    await next.journal.stop();
  });

  test("keeps what it has read while the owner that named the backlog is gone", async () => {
    const scene = await ownerAndNext();
    isAway = true;
    for (let seq = 1; seq <= 20; seq++) await scene.commit(messageRecord("s", seq));
    await clock.advance(2_000);
    scene.owner.journal.backlogged = () => [];
    await clock.advance(5_000);
    scene.next.reads.length = 0;
    const { taken } = await takeOver(scene.next.journal);
    expect(scene.next.reads).toEqual([{ from: taken.offset, to: taken.offset }]);
    await scene.next.journal.stop();
  });

  test("forgets it when the archive has caught up for a while", async () => {
    const scene = await ownerAndNext();
    isAway = true;
    for (let seq = 1; seq <= 20; seq++) await scene.commit(messageRecord("s", seq));
    await clock.advance(2_000);
    isAway = false;
    await scene.owner.journal.flush();
    await clock.advance(60_000);
    scene.next.reads.length = 0;
    const { taken } = await takeOver(scene.next.journal);
    expect(scene.next.reads[0]!.from).toBeLessThan(taken.offset);
    expect(await seqs(scene.next.journal)).toEqual(upTo(20));
    await scene.next.journal.stop();
  });

  test("O7: reads the log from its mark where what it has read doesn't fit any more", async () => {
    const scene = await ownerAndNext();
    isAway = true;
    for (let seq = 1; seq <= 20; seq++) await scene.commit(messageRecord("s", seq));
    await clock.advance(2_000);
    // Its servers lose the end that was read, and others take the places.
    servers.setBack(streamName(deployment, { ...scene.head, firstSequence: 1 }), 5);
    const other = open();
    let head = await take(other.journal, 0, "pod-3");
    await other.journal.recover(head);
    for (const seq of [16, 17, 18, 19, 20, 21]) {
      head = headOf(await other.journal.commit(head, messageRecord("s", seq)));
    }
    const { taken } = await takeOver(scene.next.journal);
    expect(scene.next.reads.at(-1)).toEqual({ from: 1, to: taken.offset });
    isAway = false;
    expect(await seqs(scene.next.journal)).toEqual(upTo(21));
    await scene.next.journal.stop();
  });

  test("W1: leaves no session behind that only marks name, when servers lose the end of the log", async () => {
    const scene = await ownerAndNext();
    const { owner, next, commit } = scene;
    const mark = async () => {
      await owner.journal.flush();
      await clock.advance(3_000);
      await owner.journal.prove!(scene.head, "p");
    };
    await commit(busyRecord("old", 1));
    await mark();
    isAway = true;
    for (let seq = 1; seq <= 20; seq++) await commit(messageRecord("s", seq));
    await clock.advance(2_000);
    isAway = false;
    await mark();
    isAway = true;
    const { taken } = await takeOver(next.journal);
    const lost = headOf(await next.journal.commit(taken, messageRecord("s", 21)));
    servers.setBack(streamName(deployment, { ...lost, firstSequence: 1 }), 2);
    const fenced = next.journal.commit(lost, messageRecord("s", 22));
    expect(await settledBy(clock, fenced)).toEqual({ type: "fenced" });
    const again = await take(next.journal, 0, "pod-2");
    const { busy } = await next.journal.recover(again);
    expect(busy.map(({ sessionId }) => sessionId)).toEqual(["old"]);
    await next.journal.stop();
  });
});
