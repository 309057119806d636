import { describe, expect, test } from "vitest";
import { systemClock } from "../../../base/clock.ts";
import { uuidv7 } from "../../../base/ids.ts";
import { between, seededRandom } from "../../../base/random.ts";
import { entry, header, messageRecord, record, take } from "../../contract/journal-harness.ts";
import { randomRecords } from "../../contract/random-records.ts";
import type { Journal, LogRecord, Reads } from "../journal.ts";
import { createMemoryJournal } from "../memory-journal.ts";
import { createMergedReads } from "./merged-reads.ts";
import { createPeeks, entryBytes, maxPeekBytes } from "./peek.ts";
import { createUnarchived } from "./unarchived.ts";

const sessionIds = ["s1", "s2", "s3"];

/** A page by bytes is the beginning of what there is, or its end, and never empty where there is some. */
async function checkPages(reads: Reads, sessionId: string) {
  const all = await reads.entries(sessionId, { after: 0, limit: 1_000 });
  for (const maxBytes of [1, 700, 1_500]) {
    for (const after of [0, 2, all.length - 1]) {
      const left = all.slice(Math.max(0, after));
      const page = await reads.entries(sessionId, { after, limit: 5, maxBytes });
      expect(page).toEqual(left.slice(0, page.length));
      expect(page.length > 0).toBe(left.length > 0);
      const range = { after: Math.max(0, after), upTo: all.length, limit: 5, maxBytes };
      const tail = await reads.tail(sessionId, range);
      expect(tail).toEqual(left.slice(left.length - tail.length));
      expect(tail.length > 0).toBe(left.length > 0);
    }
  }
}

/** All that can be read of a session. */
async function readAll(reads: Reads, sessionId: string) {
  const everything = { after: 0, limit: 1_000 };
  const entries = await reads.entries(sessionId, everything);
  const found = await reads.header(sessionId);
  const ids = entries.map(({ seq }) => ({ sessionId, clientId: `${sessionId}/${seq}` }));
  const turns = Array.from({ length: (found?.epoch ?? 0) + 1 }, (_, epoch) => ({
    sessionId,
    epoch,
  }));
  const upTo = entries.length;
  const middle = Math.floor(upTo / 2);
  const stored = await reads.storedIds(ids);
  return {
    header: found,
    entries,
    pages: [
      await reads.entries(sessionId, { after: middle, limit: 5 }),
      await reads.tail(sessionId, { after: 0, upTo, limit: 7 }),
      await reads.tail(sessionId, { after: 1, upTo: middle, limit: 50 }),
    ],
    ids: stored.toSorted((one, other) => one.seq - other.seq),
    newest: await reads.newest(sessionId, `message-${middle}`),
    checkpoint: await reads.checkpoint(sessionId),
    steps: await Promise.all(turns.map((turn) => reads.steps(turn))),
    values: await Promise.all(turns.map((turn) => reads.stepValue(turn, "a"))),
    turns: [
      await reads.turns(sessionId, { limit: 100 }),
      await reads.turns(sessionId, { limit: 2 }),
      await reads.turns(sessionId, { before: { epoch: 3, attempt: 1 }, limit: 2 }),
    ],
  };
}

async function emptyJournal(): Promise<(record: LogRecord) => Promise<Journal>> {
  const ids = uuidv7(systemClock, seededRandom(1));
  const journal = createMemoryJournal({ ids });
  await journal.create(1);
  let head = await take(journal, 0);
  return async (next) => {
    const committed = await journal.commit(head, next);
    if (committed.type !== "committed") throw new Error(`it was ${committed.type}`);
    ({ head } = committed);
    return journal;
  };
}

describe("what isn't archived", () => {
  test.each([
    { seed: 1, maxBytes: Infinity },
    { seed: 2, maxBytes: Infinity },
    { seed: 3, maxBytes: Infinity },
    { seed: 4, maxBytes: 2_000 },
    { seed: 5, maxBytes: 0 },
  ])(
    "S8: with the archive below it, is the whole log, wherever that ends (seed $seed, $maxBytes bytes)",
    async ({ seed, maxBytes }) => {
      const random = seededRandom(seed);
      const next = randomRecords(random, sessionIds);
      const commitWhole = await emptyJournal();
      const commitArchived = await emptyJournal();
      const records: LogRecord[] = [];
      const unarchived = createUnarchived({ maxHeldBytes: maxBytes });
      const peeks = createPeeks(unarchived, async (offset) => records[offset - 1]!);
      let archivedTo = 0;
      for (let round = 1; round <= 60; round++) {
        const added = next();
        records.push(added);
        const whole = await commitWhole(added);
        unarchived.add({ offset: round, chain: "", record: added }, round);
        let archive: Journal | undefined;
        const to = between(random, archivedTo, round);
        // The archive has records before it is known that it has them.
        const known = between(random, archivedTo, to);
        for (; archivedTo < to; archivedTo++) archive = await commitArchived(records[archivedTo]!);
        archive ??= await commitArchived(record());
        unarchived.archived(known);
        const reads = createMergedReads({ peeks: () => peeks, logOf: async () => 0, archive });
        for (const sessionId of sessionIds) {
          expect(await readAll(reads, sessionId)).toEqual(await readAll(whole, sessionId));
          if (round % 10 === 0) await checkPages(reads, sessionId);
        }
      }
      unarchived.archived(records.length);
      expect(unarchived.records).toBe(0);
      expect(unarchived.bytes).toBe(0);
      expect(unarchived.entries).toBe(0);
    },
  );

  test("holds no more bodies than it may, and knows of the others where they are", () => {
    const unarchived = createUnarchived({ maxHeldBytes: 1_500 });
    const said = (seq: number) =>
      record({
        entries: [entry("s", seq, { parts: [{ type: "text", text: "a".repeat(1_000) }] })],
        headers: [header("s", { lastSeq: seq })],
      });
    for (const seq of [1, 2, 3]) unarchived.add({ offset: seq, chain: "", record: said(seq) }, seq);
    expect([1, 2, 3].map((offset) => unarchived.recordAt(offset) !== undefined)).toEqual([
      true,
      false,
      false,
    ]);
    expect(unarchived.entriesOf("s").map(({ offset }) => offset)).toEqual([1, 2, 3]);
    expect(unarchived.storedId("s", "s/3")).toMatchObject({ seq: 3 });
    expect(unarchived.header("s")).toMatchObject({ lastSeq: 3 });
    // What is archived makes space for what comes next.
    unarchived.archived(2);
    unarchived.add({ offset: 4, chain: "", record: said(4) }, 4);
    expect(unarchived.recordAt(4)).toBeDefined();
    expect(unarchived.records).toBe(2);
  });

  test("tells which sessions have more in the archive now", () => {
    const unarchived = createUnarchived();
    unarchived.add({ offset: 1, chain: "", record: messageRecord("a", 1) }, 1);
    unarchived.add({ offset: 2, chain: "", record: messageRecord("b", 1) }, 2);
    unarchived.add({ offset: 3, chain: "", record: messageRecord("a", 2) }, 3);
    expect(unarchived.oldestMs).toBe(1);
    expect([...unarchived.archived(2)]).toEqual(["a", "b"]);
    expect(unarchived.oldestMs).toBe(3);
    expect([...unarchived.archived(2)]).toEqual([]);
    expect(unarchived.entriesOf("a").map(({ seq }) => seq)).toEqual([2]);
    expect(unarchived.storedId("a", "a/1")).toBeUndefined();
    expect(unarchived.header("b")).toBeUndefined();
  });
});

test("what is read of it at once is bounded in bytes, whatever is asked for", async () => {
  const unarchived = createUnarchived({ maxHeldBytes: Infinity });
  const parts = [{ type: "text", text: "x".repeat(1_000_000) }];
  for (let seq = 1; seq <= 12; seq++) {
    const { entries, ...rest } = messageRecord("s", seq);
    const large = { ...rest, entries: entries.map((each) => ({ ...each, parts })) };
    unarchived.add({ offset: seq, chain: "", record: large }, 0);
  }
  const peeks = createPeeks(unarchived, () => Promise.reject(new Error("all is in memory")));
  for (const maxBytes of [undefined, Infinity]) {
    const page = { after: 0, limit: 100, ...(maxBytes !== undefined && { maxBytes }) };
    const first = await peeks.entries("s", page);
    const last = await peeks.tail("s", { ...page, upTo: 12 });
    expect(first.entries.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    expect(last.entries.map(({ seq }) => seq)).toEqual([5, 6, 7, 8, 9, 10, 11, 12]);
    const bytes = first.entries.reduce((sum, each) => sum + entryBytes(each), 0);
    expect(bytes).toBeLessThanOrEqual(maxPeekBytes);
  }
});
