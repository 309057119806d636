import { describe, expect, test } from "vitest";
import type { EndedTurn } from "../conversation/command.ts";
import {
  all,
  entry,
  everything,
  fresh,
  header,
  headOf,
  nothing,
  record,
  messageRecord,
  storedEntry,
  turn,
  type JournalHarness,
} from "./journal-harness.ts";

const spent = { input: 10, output: 5, cached: 2, model: "small,large", cost: 0.123456 };

export function endedTurn(sessionId: string, facts: Partial<EndedTurn>) {
  return {
    sessionId,
    epoch: 1,
    attempt: 1,
    agent: "helper",
    podId: "pod-1",
    beganAtMs: 1,
    firstChunkAtMs: null,
    endedAtMs: 5,
    outcome: "completed",
    usage: null,
    ...facts,
  } as const;
}

/** What becomes of a record that is stored. */
export function recordsContract(scene: JournalHarness): void {
  describe("records", () => {
    test("S1: entries are read at the places that they were given, without a gap", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const after = headOf(await scene.journal.commit(head, messageRecord(id, 1, 3)));
      expect(after).toMatchObject({ offset: head.offset + 1, term: head.term, owner: "pod-1" });
      headOf(await scene.journal.commit(after, messageRecord(id, 4)));
      const read = await scene.another.entries(id, everything);
      expect(read).toEqual([1, 2, 3, 4].map((seq) => storedEntry(entry(id, seq))));
    });

    test("all of an entry comes back, and nothing that wasn't there", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const entries = [
        entry(id, 1, { metadata: { a: [1, null, { b: "c" }] } }),
        entry(id, 2, {
          role: "assistant",
          author: "helper",
          clientId: null,
          epoch: 7,
          outcome: "failed",
          error: { code: "x", message: "y" },
          parts: [],
        }),
        entry(id, 3, {
          kind: "tool_result",
          results: { messageId: "m", results: [{ toolCallId: "t", output: { z: 1 } }] },
        }),
        entry(id, 4, { role: "assistant", clientId: null, epoch: 8, replaces: 2 }),
        entry(id, 5, { kind: "summary", role: "system", clientId: null, throughSeq: 4 }),
        entry(id, 6, {
          kind: "stop",
          author: "bea",
          clientId: null,
          parts: [],
          stop: { epoch: 8, messageId: "answer", by: "user" },
        }),
      ];
      const after = header(id, { lastSeq: 6 });
      headOf(await scene.journal.commit(head, record({ entries, headers: [after] })));
      expect(await scene.journal.entries(id, everything)).toEqual(entries.map(storedEntry));
      expect(await scene.journal.header(id)).toEqual(after);
    });

    test("S2: no record changes or takes the place of an entry", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const after = headOf(await scene.journal.commit(head, messageRecord(id, 1, 2)));
      const before = await all(scene.journal, id);
      const over = record({
        entries: [entry(id, 3), entry(id, 2, { clientId: fresh("other"), author: "eve" })],
        headers: [header(id, { lastSeq: 3 })],
      });
      await expect(scene.journal.commit(after, over)).rejects.toMatchObject({ code: "internal" });
      expect(await all(scene.journal, id)).toEqual(before);
      await expect.poll(() => scene.now(head)).toEqual(after);
      headOf(await scene.journal.commit(after, messageRecord(id, 3)));
    });

    test("an entry without the header that counts it is refused", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const bare = record({ entries: [entry(id, 1)] });
      await expect(scene.journal.commit(head, bare)).rejects.toMatchObject({ code: "internal" });
      const short = record({ entries: [entry(id, 2)], headers: [header(id, { lastSeq: 1 })] });
      await expect(scene.journal.commit(head, short)).rejects.toMatchObject({ code: "internal" });
      const untold = record({ metadata: [{ sessionId: id, metadata: "{}" }] });
      await expect(scene.journal.commit(head, untold)).rejects.toMatchObject({ code: "internal" });
      await expect.poll(() => scene.now(head)).toEqual(head);
      expect(await all(scene.journal, id)).toEqual(nothing);
    });

    test("a record may set the same key twice, and the last counts", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const checkpoint = { sessionId: id, epoch: 1, attempt: 1 };
      const last = header(id, { lastSeq: 1, users: ["ada", "ada"], work: turn() });
      headOf(
        await scene.journal.commit(
          head,
          record({
            entries: [entry(id, 1)],
            headers: [header(id), last],
            checkpoints: [
              { ...checkpoint, body: "first" },
              { ...checkpoint, body: "last" },
            ],
          }),
        ),
      );
      expect(await scene.journal.header(id)).toEqual(last);
      expect(await scene.journal.checkpoint(id)).toEqual({ ...checkpoint, body: "last" });
    });

    test("attempts at turns are stored with the record that ends them, once, and read from the newest on", async () => {
      const head = await scene.own();
      const [id, other] = [fresh("session"), fresh("session")];
      const headers = [header(id, { lastSeq: 1 }), header(other)];
      const first = endedTurn(id, { epoch: 1, attempt: 1, outcome: "lost", podId: null });
      const turns = [
        first,
        endedTurn(id, { epoch: 1, attempt: 2, firstChunkAtMs: 3, usage: { ...spent, cost: null } }),
        endedTurn(id, { epoch: 2, attempt: 1, usage: { ...spent, model: null } }),
        endedTurn(other, { epoch: 9, attempt: 1 }),
      ];
      const all = record({ entries: [entry(id, 1)], headers, turns });
      const after = headOf(await scene.journal.commit(head, all));
      expect(await scene.journal.commit(head, all)).toMatchObject({ type: "committed" });
      const stored = turns.map(({ sessionId, ...turn }) => ({ turn, sessionId }));
      const own = stored.filter(({ sessionId }) => sessionId === id).map(({ turn }) => turn);
      const newest = own.toReversed();
      expect(await scene.another.turns(id, { limit: 10 })).toEqual(newest);
      expect(await scene.another.turns(id, { limit: 2 })).toEqual(newest.slice(0, 2));
      const before = { epoch: 1, attempt: 2 };
      expect(await scene.another.turns(id, { before, limit: 2 })).toEqual(newest.slice(2));

      const stale = record({
        headers: [header(id, { lastSeq: 1 })],
        turns: [endedTurn(id, { epoch: 3, attempt: 1 })],
      });
      expect(await scene.journal.commit(head, stale)).toEqual({ type: "fenced" });
      expect(await scene.journal.turns(id, { limit: 10 })).toEqual(newest);

      const gone = header(id, { lastSeq: 1, status: "deleted" });
      const last = [endedTurn(id, { epoch: 3, attempt: 1 })];
      headOf(await scene.journal.commit(after, record({ headers: [gone], turns: last })));
      expect(await scene.journal.turns(id, { limit: 10 })).toEqual([]);
      expect(await scene.journal.turns(other, { limit: 10 })).toHaveLength(1);
    });

    test("records go to different logs at once", async () => {
      const mine = await Promise.all(Array.from({ length: 8 }, () => scene.own()));
      const ids = mine.map(() => fresh("session"));
      const heads = await Promise.all(
        mine.map(async (taken, at) => {
          let head = taken;
          for (let seq = 1; seq <= 10; seq++) {
            const via = (at + seq) % 2 === 0 ? scene.journal : scene.another;
            head = headOf(await via.commit(head, messageRecord(ids[at]!, seq)));
          }
          return head;
        }),
      );
      expect(heads.map(({ offset }) => offset)).toEqual(mine.map(({ offset }) => offset + 10));
      for (const id of ids) expect(await scene.journal.entries(id, everything)).toHaveLength(10);
    });

    test("a record of many sessions is stored as a whole", async () => {
      const head = await scene.own();
      const ids = Array.from({ length: 200 }, () => fresh("session"));
      const each = ids.map((id) => messageRecord(id, 1, 5));
      const whole = record({
        entries: each.flatMap(({ entries }) => entries),
        headers: each.flatMap(({ headers }) => headers),
      });
      headOf(await scene.journal.commit(head, whole));
      for (const id of ids) expect(await scene.journal.entries(id, everything)).toHaveLength(5);
    });
  });

  describe("client ids", () => {
    test("entries without one are never duplicates, and each with one is found by it", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const entries = [1, 2, 3, 4, 5, 6].map((seq) =>
        entry(id, seq, { clientId: seq % 2 === 0 ? `c${seq}` : null }),
      );
      headOf(
        await scene.journal.commit(
          head,
          record({ entries, headers: [header(id, { lastSeq: 6 })] }),
        ),
      );
      const other = fresh("session");
      const asked = [id, other].flatMap((sessionId) =>
        ["c2", "c3", "c6"].map((clientId) => ({ sessionId, clientId })),
      );
      const found = await scene.journal.storedIds(asked);
      expect(found.toSorted((one, next) => one.seq - next.seq)).toEqual([
        { sessionId: id, clientId: "c2", seq: 2 },
        { sessionId: id, clientId: "c6", seq: 6 },
      ]);
    });
  });

  test("of a deleted session nothing but the fact is left", async () => {
    const head = await scene.own();
    const [id, other] = [fresh("session"), fresh("session")];
    const before = record({
      entries: [entry(id, 1), entry(id, 2), entry(other, 1)],
      headers: [
        header(id, { lastSeq: 2, epoch: 1, work: turn(), preview: "secret" }),
        header(other, { lastSeq: 1 }),
      ],
      checkpoints: [{ sessionId: id, epoch: 1, attempt: 1, body: "secret" }],
    });
    const next = headOf(await scene.journal.commit(head, before));
    // What the same record says besides comes too late to be kept.
    const gone = record({
      entries: [entry(id, 3)],
      headers: [
        header(id, {
          lastSeq: 3,
          epoch: 2,
          status: "deleted",
          work: turn({ epoch: 2 }),
          preview: "secret",
          previewAuthor: "ada",
        }),
      ],
      metadata: [{ sessionId: id, metadata: '"secret"' }],
      checkpoints: [{ sessionId: id, epoch: 2, attempt: 1, body: "secret" }],
    });
    const last = headOf(await scene.journal.commit(next, gone));
    const left = header(id, {
      lastSeq: 3,
      epoch: 2,
      status: "deleted",
      users: [],
      agents: [],
    });
    expect(await all(scene.journal, id)).toEqual({ ...nothing, header: left });
    expect(await scene.journal.newest(id, "message-1")).toBeUndefined();
    expect(await scene.journal.tail(id, { after: 0, upTo: 9, limit: 9 })).toEqual([]);
    expect(await scene.journal.recover(last)).toEqual({ busy: [] });
    expect(await scene.journal.entries(other, everything)).toHaveLength(1);
    expect(await scene.journal.commit(next, gone)).toEqual({ type: "committed", head: last });
  });
}
