import { expect, test } from "vitest";
import { movableClock, settledBy } from "../base/contract/movable-clock.ts";
import { uuidv7 } from "../base/ids.ts";
import { silentLogger } from "../base/log.ts";
import { seededRandom } from "../base/random.ts";
import { createMemoryBus } from "../bus/memory-bus.ts";
import { memoryKind } from "../store/contract/kinds.ts";
import { migrate } from "../store/migrate.ts";
import { rowsOf, startForking, textOf } from "./contract/forking.ts";
import { everything } from "./contract/journal-harness.ts";
import { simulateStreams } from "./contract/simulated-streams.ts";
import { storingSessions } from "./contract/stored-sessions.ts";
import { createArchivedJournal } from "./log/archive/journal.ts";
import { createStreamLog } from "./log/jetstream/log.ts";
import { createSqlJournal } from "./log/sql-journal.ts";
import { readHistory } from "./turns/history.ts";
import { turn } from "./contract/journal-harness.ts";
import { placeOnStreams } from "./log/place.ts";

const tenant = "default";

/** Sessions whose logs are on streams, over a database that follows. */
async function onStreams() {
  const clock = movableClock();
  const random = seededRandom(5);
  const { database } = await memoryKind.open();
  await migrate(database);
  await placeOnStreams(database);
  const ids = uuidv7(clock, random);
  const parts = { clock, random, ids, log: silentLogger };
  const servers = simulateStreams({ clock, random });
  const bus = createMemoryBus();
  const open = (podId: string) =>
    createArchivedJournal({
      ...parts,
      stream: createStreamLog({
        ...parts,
        engine: servers.connect(),
        deployment: { namespace: "test", clusterId: "c", replicas: 3, maxLogBytes: 1_000_000 },
        maxRecordBytes: 100_000,
      }),
      database,
      bus: bus.connect(podId, { clock }),
    });
  const journal = open("pod-1");
  const t = await startForking(database, journal, {
    ahead: { ...journal, behindMs: () => 0 },
    clock,
  });
  const settled = <Value>(call: Promise<Value>) => settledBy(clock, call);
  return { ...t, database, journal, other: open("pod-2"), settled };
}

test("with logs on streams, a fork waits until its entries are archived, and is read before it is", async () => {
  const t = await onStreams();
  await t.settled(t.talked("p", 3));
  const forked = t.service.fork(tenant, "p", { id: "f", atSeq: 2 });
  let isMade = false;
  void forked.then(() => (isMade = true));
  await t.clock.advance(1_000);
  expect([isMade, await rowsOf(t.database, "f")]).toMatchObject([false, [{ forks: 0 }]]);
  await t.journal.flush();
  await t.settled(forked);
  await t.settled(t.say("f", "f-3"));
  // Nothing of the fork itself is in the database yet.
  expect(await rowsOf(t.database, "f")).toMatchObject([{ entries: 0 }]);
  for (const journal of [t.journal, t.other]) {
    const read = await t.settled(journal.entries("f", everything));
    expect(read.map(textOf)).toEqual(["p-1", "p-2", "f-3"]);
    const tail = { after: 0, upTo: 1_000, limit: 2 };
    expect((await t.settled(journal.tail("f", tail))).map(textOf)).toEqual(["p-2", "f-3"]);
    expect(await t.settled(journal.newest("f", "p-1"))).toMatchObject({ seq: 1 });
  }
  await t.settled(t.service.remove(tenant, "p"));
  await t.journal.flush();
  expect(await rowsOf(t.database, "p")).toMatchObject([{ entries: 2 }]);
  await t.settled(t.say("f", "f-4"));
  expect(await t.settled(t.read("f", 2))).toEqual(["p-1", "p-2", "f-3", "f-4"]);
  await t.settled(t.service.remove(tenant, "f"));
  await t.journal.flush();
  await t.collector.pass();
  expect(await rowsOf(t.database, "p", "f")).toEqual([
    { entries: 0, forks: 0 },
    { entries: 0, forks: 0 },
  ]);
});

test("with logs on streams, nothing comes of a fork whose database stays away", async () => {
  const t = await onStreams();
  await t.settled(t.talked("p", 3));
  await expect(t.settled(t.service.fork(tenant, "p", { id: "f", atSeq: 2 }))).rejects.toMatchObject(
    { code: "store_unavailable" },
  );
  await t.journal.flush();
  expect(await t.settled(t.service.fork(tenant, "p", { id: "f", atSeq: 2 }))).toMatchObject({
    lastSeq: 2,
  });
});

/** A conversation that was summed up twice: up to 2, told by entry 4, and up to 6, told by entry 8. */
async function summedUp() {
  const { database } = await memoryKind.open();
  await migrate(database);
  const clock = movableClock();
  const journal = createSqlJournal({ database, ids: uuidv7(clock, seededRandom(1)) });
  const said = (seq: number) => ({
    messageId: `m${seq}`,
    tokens: 10,
    parts: [{ type: "text", text: `said ${seq}` }],
  });
  const summary = (seq: number, throughSeq: number) => ({
    ...said(seq),
    kind: "summary" as const,
    role: "system" as const,
    author: "helper",
    throughSeq,
    tokens: 3,
    parts: [{ type: "text", text: `summary up to ${throughSeq}` }],
  });
  const entries = [1, 2, 3, 4, 5, 6, 7, 8, 9].map((seq) =>
    seq === 4 ? summary(4, 2) : seq === 8 ? summary(8, 6) : said(seq),
  );
  const summed = { summarySeq: 8, compactedSeq: 6, tokens: 23, epoch: 7 };
  await storingSessions(journal)({ sessionId: "p", entries, ...summed });
  const t = await startForking(database, journal, { clock });
  const context = { history: { mode: "entire" }, context: { skipParts: [], lastN: null } } as const;
  const historyAt = async (atSeq: number) => {
    const sessionId = `f${atSeq}`;
    await t.service.fork(tenant, "p", { id: sessionId, atSeq, agents: [] });
    const header = (await journal.header(sessionId))!;
    const asked = turn({ upToSeq: atSeq, trigger: "submit" });
    const { messages } = await readHistory(journal, header, asked, context);
    const texts = messages.map(({ parts }) => parts.map(({ text }) => text).join(""));
    return { texts, tokens: header.tokens, epoch: header.epoch };
  };
  return historyAt;
}

test("an agent of a fork gets the summary of its place, and what came after that", async () => {
  const historyAt = await summedUp();
  expect(await historyAt(9)).toEqual({
    texts: ["summary up to 6", "said 7", "said 9"],
    tokens: 23,
    epoch: 7,
  });
  // The second summary wasn't there yet, though it is of entries that were.
  expect(await historyAt(7)).toMatchObject({
    texts: ["summary up to 2", "said 3", "said 5", "said 6", "said 7"],
    tokens: 43,
  });
  expect(await historyAt(3)).toMatchObject({ texts: ["said 1", "said 2", "said 3"], tokens: 30 });
});
