import { describe, expect, test } from "vitest";
import { encodeCheckpoint, readUnfinished } from "../turns/unfinished.ts";
import type { LogRecord } from "../log/journal.ts";
import {
  all,
  entry,
  everything,
  fresh,
  header,
  headOf,
  nothing,
  oddTexts,
  record,
  messageRecord,
  storedEntry,
  turn,
  type JournalHarness,
} from "./journal-harness.ts";

/** What can be read of what is stored. */
export function readingContract(scene: JournalHarness): void {
  describe("turns", () => {
    test("the last checkpoint of a turn is there until the turn has ended", async () => {
      let head = await scene.own();
      const id = fresh("session");
      const checkpoint = { sessionId: id, epoch: 1, attempt: 1, body: "a" };
      const put = async (changes: Partial<LogRecord>) => {
        head = headOf(await scene.journal.commit(head, record(changes)));
        return scene.journal.checkpoint(id);
      };
      await put({ entries: [entry(id, 1)], headers: [header(id, { lastSeq: 1, work: turn() })] });
      expect(await scene.journal.checkpoint(id)).toBeUndefined();
      expect(await put({ checkpoints: [checkpoint] })).toEqual(checkpoint);
      expect(await put({ checkpoints: [{ ...checkpoint, body: "ab" }] })).toMatchObject({
        body: "ab",
      });
      // Another attempt begins: what the last one has said is all there is, until it says more.
      const second = header(id, { lastSeq: 1, work: turn({ attempt: 2 }) });
      expect(await put({ headers: [second] })).toMatchObject({ attempt: 1, body: "ab" });
      const later = { ...checkpoint, attempt: 2, body: "c" };
      expect(await put({ headers: [second], checkpoints: [later] })).toEqual(later);
      expect(await put({ headers: [second], checkpoints: [checkpoint] })).toEqual(later);
      expect(await put({ checkpoints: [checkpoint] })).toEqual(later);
      const reply = entry(id, 2, { role: "assistant", epoch: 1, clientId: null });
      expect(
        await put({ entries: [reply], headers: [header(id, { lastSeq: 2, epoch: 1 })] }),
      ).toBeUndefined();
    });

    test("what an unfinished call has said is there for the next attempt, until the turn has ended", async () => {
      let head = await scene.own();
      const id = fresh("session");
      const put = async (changes: Partial<LogRecord>) => {
        head = headOf(await scene.journal.commit(head, record(changes)));
      };
      const read = (attempt: number) => readUnfinished(scene.another, id, { epoch: 1, attempt });
      const kept = (attempt: number, said: string) => {
        const reply = { outcome: "cut", parts: [{ type: "text", text: said }], tokens: 1 } as const;
        const body = encodeCheckpoint(reply, { "model[1]": said });
        return [{ sessionId: id, epoch: 1, attempt, body }];
      };
      // Text that databases and JSON have their own ideas about.
      const first = 'half \u0000 \ud83d "words" ü';
      await put({ headers: [header(id, { epoch: 1, work: turn() })], checkpoints: kept(1, first) });
      expect(await read(1)).toEqual({});
      await put({ headers: [header(id, { epoch: 1, work: turn({ attempt: 2 }) })] });
      expect(await read(2)).toEqual({ "model[1]": first });
      await put({ checkpoints: kept(2, "half words and more") });
      // A paused pod that stores late takes nothing of it back.
      await put({ checkpoints: kept(1, first) });
      expect(await read(3)).toEqual({ "model[1]": "half words and more" });
      await put({ headers: [header(id, { epoch: 1 })] });
      expect(await read(3)).toEqual({});
    });

    test("a checkpoint of a turn that is over isn't used for the next", async () => {
      let head = await scene.own();
      const id = fresh("session");
      const checkpoint = { sessionId: id, epoch: 1, attempt: 1, body: "a" };
      const put = async (changes: Partial<LogRecord>) => {
        head = headOf(await scene.journal.commit(head, record(changes)));
        return scene.journal.checkpoint(id);
      };
      const first = header(id, { epoch: 1, work: turn() });
      expect(await put({ headers: [first], checkpoints: [checkpoint] })).toEqual(checkpoint);
      const second = header(id, { epoch: 2, work: turn({ epoch: 2 }) });
      expect(await put({ headers: [second] })).toBeUndefined();
      const newer = { ...checkpoint, epoch: 2 };
      expect(await put({ checkpoints: [newer] })).toEqual(newer);
      expect(await put({ checkpoints: [checkpoint] })).toEqual(newer);
      expect(await put({ headers: [header(id, { epoch: 2 })] })).toBeUndefined();
      expect(await put({ headers: [header(id, { epoch: 2 })], checkpoints: [newer] })).toBe(
        undefined,
      );
    });
  });

  describe("what is read", () => {
    test("entries come in pages without a gap, however many there are", async () => {
      let head = await scene.own();
      const id = fresh("session");
      for (let from = 1; from <= 10_000; from += 1_000) {
        head = headOf(await scene.journal.commit(head, messageRecord(id, from, from + 999)));
      }
      const seqs: number[] = [];
      for (let after = 0; ;) {
        const page = await scene.another.entries(id, { after, limit: 700, maxBytes: 1_000_000 });
        if (page.length === 0) break;
        expect(page.length).toBeLessThanOrEqual(700);
        seqs.push(...page.map(({ seq }) => seq));
        after = seqs.at(-1)!;
      }
      expect(seqs).toEqual(Array.from({ length: 10_000 }, (_, at) => at + 1));
      expect(await scene.journal.entries(id, { after: 9_999, limit: 5 })).toHaveLength(1);
      expect(await scene.journal.newest(id, "message-1")).toMatchObject({ seq: 1 });
    });

    test("a page takes no more than its bytes, unless its first entry alone does", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const big = (seq: number) =>
        entry(id, seq, { parts: [{ type: "text", text: "ü".repeat(50_000) }] });
      const entries = [1, 2, 3, 4].map(big);
      headOf(
        await scene.journal.commit(
          head,
          record({ entries, headers: [header(id, { lastSeq: 4 })] }),
        ),
      );
      const page = async (after: number, maxBytes: number) =>
        (await scene.journal.entries(id, { after, limit: 10, maxBytes })).map(({ seq }) => seq);
      expect(await page(0, 1)).toEqual([1]);
      expect(await page(0, 150_000)).toEqual([1]);
      expect(await page(0, 280_000)).toEqual([1, 2]);
      expect(await page(2, 10_000_000)).toEqual([3, 4]);
      expect(await page(4, 1)).toEqual([]);
      const tail = async (upTo: number, maxBytes: number) =>
        (await scene.journal.tail(id, { after: 0, upTo, limit: 10, maxBytes })).map(
          ({ seq }) => seq,
        );
      expect(await tail(4, 1)).toEqual([4]);
      expect(await tail(3, 150_000)).toEqual([3]);
      expect(await tail(3, 280_000)).toEqual([2, 3]);
      expect(await tail(2, 10_000_000)).toEqual([1, 2]);
    });

    test("the tail is the newest that are in the range, in order", async () => {
      const head = await scene.own();
      const id = fresh("session");
      headOf(await scene.journal.commit(head, messageRecord(id, 1, 10)));
      const tail = async (after: number, upTo: number, limit: number) =>
        (await scene.journal.tail(id, { after, upTo, limit })).map(({ seq }) => seq);
      expect(await tail(0, 10, 3)).toEqual([8, 9, 10]);
      expect(await tail(0, 5, 3)).toEqual([3, 4, 5]);
      expect(await tail(4, 5, 3)).toEqual([5]);
      expect(await tail(5, 5, 3)).toEqual([]);
    });

    test("of entries with the same message id the newest is given", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const entries = [1, 2, 3].map((seq) =>
        entry(id, seq, { messageId: seq === 3 ? "other" : "same" }),
      );
      headOf(
        await scene.journal.commit(
          head,
          record({ entries, headers: [header(id, { lastSeq: 3 })] }),
        ),
      );
      expect(await scene.journal.newest(id, "same")).toEqual(storedEntry(entries[1]!));
      expect(await scene.journal.newest(id, "none")).toBeUndefined();
    });

    test("big bodies come back whole", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const text = 'a"\\\n😀é'.repeat(150_000);
      const entries = [1, 2, 3].map((seq) => entry(id, seq, { parts: [{ type: "text", text }] }));
      headOf(
        await scene.journal.commit(
          head,
          record({ entries, headers: [header(id, { lastSeq: 3 })] }),
        ),
      );
      const read = await scene.journal.entries(id, everything);
      expect(read.every(({ parts }) => parts[0]!["text"] === text)).toBe(true);
    });

    test.each(oddTexts)("text is kept as it is: %j", async (text) => {
      const head = await scene.own();
      const id = `${text}${fresh("session")}`;
      const part = {
        type: text,
        [text]: text,
        nested: JSON.parse(`{"__proto__":${JSON.stringify(text)}}`),
      };
      const made = entry(id, 1, {
        author: text,
        messageId: text,
        clientId: text,
        parts: [part, { type: "text", text: `\u0000\ud800${text}` }],
        metadata: { [text]: [text] },
      });
      const stored = header(id, {
        lastSeq: 1,
        users: [text],
        agents: [text],
        tenant: text,
        preview: text,
        epoch: 1,
        work: turn({ agent: text, messageId: text }),
      });
      const checkpoint = { sessionId: id, epoch: 1, attempt: 1, body: text };
      const changes = { entries: [made], headers: [stored], checkpoints: [checkpoint] };
      headOf(await scene.journal.commit(head, record(changes)));
      expect(await all(scene.journal, id)).toStrictEqual({
        header: stored,
        entries: [storedEntry(made)],
        ids: [],
        checkpoint,
      });
      expect(await scene.journal.newest(id, text)).toEqual(storedEntry(made));
      const found = [{ sessionId: id, clientId: text, seq: 1 }];
      expect(await scene.journal.storedIds([{ sessionId: id, clientId: text }])).toEqual(found);
    });

    test("a session that was never stored has nothing", async () => {
      expect(await all(scene.journal, fresh("session"))).toEqual(nothing);
    });
  });
}
