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
import { sql, table } from "../../../store/sql.ts";
import { everything, headOf, messageRecord, take } from "../../contract/journal-harness.ts";
import { type SimulatedStreams, simulateStreams } from "../../contract/simulated-streams.ts";
import type { StreamEngine } from "../jetstream/engine.ts";
import { createStreamLog } from "../jetstream/log.ts";
import { streamName } from "../jetstream/streams.ts";
import type { Head } from "../journal.ts";
import { createSqlReads } from "../sql-journal.ts";
import { createArchivedJournal } from "./journal.ts";
import { placeOnStreams } from "../place.ts";

const random = seededRandom(13);
const deployment = {
  namespace: "test",
  clusterId: "c1",
  replicas: 3,
  maxLogBytes: 1_000_000,
} as const;
const minuteMs = 60_000;

let clock: MovableClock;
let servers: SimulatedStreams;
let sound: Database;

beforeEach(async () => {
  clock = movableClock();
  servers = simulateStreams({ clock, random });
  ({ database: sound } = await memoryKind.open());
  await migrate(sound);
  await placeOnStreams(sound);
});

/** What holds a process up at one point, from when it is shut until it is opened. */
function gate() {
  let held: PromiseWithResolvers<void> | undefined;
  return {
    shut: () => void (held = Promise.withResolvers()),
    open: () => held?.resolve(),
    passed: async () => held?.promise,
  };
}

/** A pod that can be stopped at each of its calls to servers and database. */
function pod() {
  const gates = { replay: gate(), answer: gate(), purge: gate(), flush: gate() };
  const real = servers.connect();
  const engine: StreamEngine = {
    ...real,
    async lastOn(...args) {
      await gates.replay.passed();
      return real.lastOn(...args);
    },
    async publish(...args) {
      const answer = await real.publish(...args);
      await gates.answer.passed();
      return answer;
    },
    async purge(...args) {
      await gates.purge.passed();
      return real.purge(...args);
    },
  };
  let trouble: FlotillaError | undefined;
  let failures = 0;
  const database: Database = {
    ...sound,
    async write(statements, options) {
      await gates.flush.passed();
      if (trouble && failures-- > 0) throw trouble;
      return sound.write(statements, options);
    },
  };
  const ids = uuidv7(clock, random);
  const parts = { clock, random, ids, log: silentLogger };
  const stream = createStreamLog({ ...parts, engine, deployment, maxRecordBytes: 100_000 });
  const journal = createArchivedJournal({ ...parts, stream, database });
  return {
    journal,
    gates,
    /** So many writes fail. */
    fail: (error: FlotillaError, times = Infinity) => void ([trouble, failures] = [error, times]),
  };
}

const settled = <Value>(call: Promise<Value>) => settledBy(clock, call);
const archivedSeqs = async () =>
  (await createSqlReads({ database: sound }).entries("s", everything)).map(({ seq }) => seq);

const asides = () => sound.read(sql`select * from ${table("archive_aside")}`);

/** The next owner of the log, with what it finds of the session. */
async function owner(podId: string) {
  const next = pod();
  let head = await take(next.journal, 0, podId);
  await settled(next.journal.recover(head));
  return {
    ...next,
    get head() {
      return head;
    },
    async commit(seq: number): Promise<Head> {
      head = headOf(await settled(next.journal.commit(head, messageRecord("s", seq))));
      return head;
    },
    seqs: async () => (await settled(next.journal.entries("s", everything))).map(({ seq }) => seq),
  };
}

describe("a pod that is paused while another takes its log", () => {
  beforeEach(() => pod().journal.create(1));

  test("O7: between its fence and its replay serves nothing of what came since", async () => {
    const { journal, gates } = pod();
    const taken = await take(journal, 0, "pod-1");
    gates.replay.shut();
    const recovering = journal.recover(taken).then(
      () => "served",
      (error: FlotillaError) => error.code,
    );
    const next = await owner("pod-2");
    await next.commit(1);
    gates.replay.open();
    expect(await settled(recovering)).not.toBe("internal");
    const late = journal.commit(taken, messageRecord("s", 1));
    expect(await settled(late)).toEqual({ type: "fenced" });
    expect(await next.seqs()).toEqual([1]);
    await next.journal.flush();
    expect(await archivedSeqs()).toEqual([1]);
  });

  test("O2, O7: between the ack of a record and what follows it has that one stored, and no other", async () => {
    const first = await owner("pod-1");
    first.gates.answer.shut();
    const at = first.head;
    const committing = first.journal.commit(at, messageRecord("s", 1));
    const next = await owner("pod-2");
    expect(await next.seqs()).toEqual([1]);
    await next.commit(2);
    first.gates.answer.open();
    const head = headOf(await settled(committing));
    expect(await settled(first.journal.commit(head, messageRecord("s", 2)))).toEqual({
      type: "fenced",
    });
    await next.journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2]);
  });

  test("S8: in a flush stores nothing twice, and takes nothing back", async () => {
    const first = await owner("pod-1");
    await first.commit(1);
    first.gates.flush.shut();
    const flushing = first.journal.flush();
    const next = await owner("pod-2");
    await next.commit(2);
    await next.journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2]);
    first.gates.flush.open();
    await settled(flushing);
    await first.journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2]);
    expect(await asides()).toEqual([]);
    expect(await sound.read(sql`select log_offset from ${table("log_watermark")}`)).toEqual([
      { log_offset: next.head.offset },
    ]);
    await next.commit(3);
    await next.journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2, 3]);
  });

  test("S1: in a trim takes nothing from the log that isn't archived", async () => {
    const first = await owner("pod-1");
    first.journal.start();
    first.gates.purge.shut();
    // How old the margin is, is known to ten seconds.
    await clock.advance(11_000);
    for (const seq of [1, 2, 3]) await first.commit(seq);
    await clock.advance(2_000);
    expect(await archivedSeqs()).toEqual([1, 2, 3]);
    // What is archived stays in the log for ten minutes, and then this one wants to trim it.
    await clock.advance(11 * minuteMs);
    const next = await owner("pod-2");
    next.fail(new FlotillaError("store_unavailable", "the database is away"));
    for (const seq of [4, 5]) await next.commit(seq);
    const stream = streamName(deployment, { ...next.head, firstSequence: 1 });
    const before = servers.stored(stream).length;
    first.gates.purge.open();
    await clock.advance(2_000);
    expect(servers.stored(stream).length).toBeLessThan(before);
    const last = await owner("pod-3");
    expect(await last.seqs()).toEqual([1, 2, 3, 4, 5]);
    await last.journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2, 3, 4, 5]);
    await first.journal.stop();
  });
});

test.each(["store_full", "store_read_only"] as const)(
  "S10: a database that answers %s takes nothing, of which nothing is set aside, until it does",
  async (code) => {
    await pod().journal.create(1);
    const { journal, fail, commit, seqs } = await owner("pod-1");
    await commit(1);
    await journal.flush();
    for (const seq of [2, 3, 4]) await commit(seq);
    // Something smaller than a whole record would fit after that.
    fail(new FlotillaError(code, "no space left on device"), 4);
    for (let flushes = 0; flushes < 4; flushes++) await journal.flush();
    expect(await archivedSeqs()).toEqual([1]);
    expect(journal.state()).toMatchObject({ isAway: true, aside: 0, unarchivedEntries: 3 });
    expect(await seqs()).toEqual([1, 2, 3, 4]);
    await journal.flush();
    expect(await archivedSeqs()).toEqual([1, 2, 3, 4]);
    expect(journal.state()).toMatchObject({ isAway: false, aside: 0, unarchivedEntries: 0 });
    expect(await asides()).toEqual([]);
  },
);
