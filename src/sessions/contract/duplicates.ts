import { describe, expect, test } from "vitest";
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
  type JournalHarness,
} from "./journal-harness.ts";

/** How a journal finds client ids again that it stored at any time. */
export function duplicatesContract(scene: JournalHarness): void {
  describe("client ids that are stored already", () => {
    test("one that was stored before is found, and nothing of the record is stored", async () => {
      const head = await scene.own();
      const [one, two] = [fresh("session"), fresh("session")];
      const first = record({
        entries: [entry(one, 1, { clientId: "x" }), entry(one, 2, { clientId: "y" })],
        headers: [header(one, { lastSeq: 2 })],
      });
      const next = headOf(await scene.journal.commit(head, first));
      const before = await all(scene.journal, one);
      const repeated = record({
        entries: [
          entry(two, 1, { clientId: "x" }),
          entry(one, 3, { clientId: "z" }),
          entry(one, 4, { clientId: "x" }),
          entry(one, 5, { clientId: "y" }),
        ],
        headers: [header(two, { lastSeq: 1 }), header(one, { lastSeq: 5 })],
      });
      const answer = await scene.journal.commit(next, repeated);
      expect(answer).toMatchObject({ type: "duplicate" });
      if (answer.type !== "duplicate") return;
      expect(answer.found).toHaveLength(2);
      expect(answer.found).toContainEqual({ sessionId: one, clientId: "x", seq: 1 });
      expect(answer.found).toContainEqual({ sessionId: one, clientId: "y", seq: 2 });
      expect(await all(scene.journal, one)).toEqual(before);
      expect(await all(scene.journal, two)).toEqual(nothing);
      await expect.poll(() => scene.now(next)).toEqual(next);
      // A command that is decided again goes on at the same place.
      headOf(await scene.journal.commit(next, messageRecord(one, 3)));
    });

    test("a record that is behind is fenced, whatever its ids", async () => {
      const head = await scene.own();
      const id = fresh("session");
      headOf(await scene.journal.commit(head, messageRecord(id, 1)));
      const same = record({
        entries: [entry(id, 2, { clientId: `${id}/1` })],
        headers: [header(id, { lastSeq: 2 })],
      });
      expect(await scene.journal.commit(head, same)).toEqual({ type: "fenced" });
    });

    test("O1: of records of several logs at once, one that is refused undoes no other", async () => {
      const heads = [await scene.own(), await scene.own(), await scene.own()];
      const ids = heads.map(() => fresh("session"));
      heads[1] = headOf(await scene.journal.commit(heads[1]!, messageRecord(ids[1]!, 1)));
      const again = entry(ids[1]!, 2, { clientId: entry(ids[1]!, 1).clientId });
      const records = [
        messageRecord(ids[0]!, 1),
        record({ entries: [again], headers: [header(ids[1]!, { lastSeq: 2 })] }),
        messageRecord(ids[2]!, 1),
      ];
      const before = await all(scene.journal, ids[1]!);
      const [first, refused, last] = await Promise.all(
        heads.map((head, at) => scene.journal.commit(head, records[at]!)),
      );
      const { sessionId, clientId } = again;
      expect(refused).toEqual({ type: "duplicate", found: [{ sessionId, clientId, seq: 1 }] });
      expect(await all(scene.journal, ids[1]!)).toEqual(before);
      await expect.poll(() => scene.now(heads[1]!)).toEqual(heads[1]);
      for (const committed of [first, last]) headOf(committed!);
      expect(await scene.journal.entries(ids[0]!, everything)).toHaveLength(1);
      expect(await scene.journal.entries(ids[2]!, everything)).toHaveLength(1);
    });

    test.each(oddTexts)("one is found as it is: %j", async (text) => {
      const head = await scene.own();
      const id = fresh("session");
      const said = (seq: number) =>
        record({
          entries: [entry(id, seq, { clientId: text })],
          headers: [header(id, { lastSeq: seq })],
        });
      const next = headOf(await scene.journal.commit(head, said(1)));
      const found = [{ sessionId: id, clientId: text, seq: 1 }];
      expect(await scene.journal.commit(next, said(2))).toEqual({ type: "duplicate", found });
    });
  });
}
