import { describe, expect, test } from "vitest";
import {
  all,
  elsewhere,
  entry,
  everything,
  fresh,
  header,
  headOf,
  nothing,
  record,
  messageRecord,
  take,
  turn,
  type JournalHarness,
} from "./journal-harness.ts";

/** What can be read of records that were fenced, or sent again. */
export function fencedReadsContract(scene: JournalHarness): void {
  describe("what is read after a fence", () => {
    test("O3: what isn't right behind the end of its log is stored nowhere at all", async () => {
      const old = await scene.own();
      const id = fresh("session");
      const first = messageRecord(id, 1);
      const work = { work: turn(), epoch: 1 };
      const head = headOf(
        await scene.journal.commit(old, {
          ...first,
          headers: [header(id, { lastSeq: 1, ...work })],
        }),
      );
      const before = await all(scene.journal, id);
      const made = fresh("session");
      for (const at of [old, ...elsewhere(head)]) {
        const late = record({
          entries: [entry(id, 2), entry(made, 1)],
          headers: [header(id, { lastSeq: 2, ...work }), header(made, { lastSeq: 1 })],
          checkpoints: [{ sessionId: id, epoch: 1, attempt: 1, body: "late" }],
        });
        expect(await scene.journal.commit(at, late)).toEqual({ type: "fenced" });
        const gone = record({ headers: [header(id, { lastSeq: 1, status: "deleted" })] });
        expect(await scene.journal.commit(at, gone)).toEqual({ type: "fenced" });
      }
      expect(await all(scene.journal, id)).toEqual(before);
      expect(await all(scene.journal, made)).toEqual(nothing);
      await expect.poll(() => scene.now(head)).toEqual(head);
    });

    test("O2: the same record at the same place again is committed, and changes nothing", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const same = record({
        entries: [entry(id, 1), entry(id, 2)],
        headers: [header(id, { lastSeq: 2, epoch: 1, work: turn() })],
        checkpoints: [{ sessionId: id, epoch: 1, attempt: 1, body: "so far" }],
      });
      const committed = await scene.journal.commit(head, same);
      const before = await all(scene.journal, id);
      for (const via of [scene.journal, scene.another]) {
        expect(await via.commit(head, same)).toEqual(committed);
      }
      expect(await all(scene.journal, id)).toEqual(before);
      await expect.poll(() => scene.now(head)).toEqual(headOf(committed));
    });

    test("O2: the same record sent many times at once is stored once", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const same = messageRecord(id, 1, 20);
      const answers = await Promise.all(
        [scene.journal, scene.another, scene.journal, scene.another].map((via) =>
          via.commit(head, same),
        ),
      );
      for (const answer of answers) expect(answer).toEqual(answers[0]);
      expect(headOf(answers[0]!).offset).toBe(head.offset + 1);
      expect(await scene.journal.entries(id, everything)).toHaveLength(20);
    });

    test("O1: of records of several logs at once, one that is fenced undoes no other", async () => {
      const heads = [await scene.own(), await scene.own(), await scene.own()];
      const lost = heads[1]!;
      const taken = await take(scene.another, lost.logId, "pod-2");
      const ids = heads.map(() => fresh("session"));
      const [first, fenced, last] = await Promise.all(
        heads.map((head, at) => scene.journal.commit(head, messageRecord(ids[at]!, 1, 3))),
      );
      expect(fenced).toEqual({ type: "fenced" });
      expect(await all(scene.journal, ids[1]!)).toEqual(nothing);
      await expect.poll(() => scene.now(lost)).toEqual(taken);
      for (const [at, committed] of [
        [0, first],
        [2, last],
      ] as const) {
        expect(headOf(committed!)).toMatchObject({ offset: heads[at]!.offset + 1 });
        await expect.poll(() => scene.now(heads[at]!)).toEqual(headOf(committed!));
        expect(await scene.journal.entries(ids[at]!, everything)).toHaveLength(3);
      }
    });

    test("O2: a record that was stored isn't applied again over a later one", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const first = record({
        entries: [entry(id, 1)],
        headers: [header(id, { lastSeq: 1, epoch: 1, work: turn() })],
        checkpoints: [{ sessionId: id, epoch: 1, attempt: 1, body: "so far" }],
      });
      const next = headOf(await scene.journal.commit(head, first));
      const reply = entry(id, 2, { role: "assistant", epoch: 1, clientId: null });
      const last = record({
        entries: [reply],
        headers: [header(id, { lastSeq: 2, epoch: 1, users: [] })],
      });
      headOf(await scene.journal.commit(next, last));
      const before = await all(scene.journal, id);
      expect(await scene.journal.commit(head, first)).toEqual({ type: "fenced" });
      expect(await all(scene.journal, id)).toEqual(before);
    });

    test("a log that has moved since it was seen isn't taken, whatever was made up of its head", async () => {
      const head = headOf(
        await scene.journal.commit(await scene.own(), messageRecord(fresh("session"), 1)),
      );
      const owner = { podId: "pod-2", host: null, recordId: fresh("take") };
      for (const other of elsewhere(head)) {
        expect(await scene.journal.take(other, owner)).toBeUndefined();
      }
      await expect.poll(() => scene.now(head)).toEqual(head);
    });
  });
}
