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

/** Whose records are stored, and whose are not. */
export function fencesContract(scene: JournalHarness): void {
  describe("owners", () => {
    test("O1: an owner begins with a record of its own, and none of an old term follows it", async () => {
      const old = await scene.own("pod-1");
      const id = fresh("session");
      const at = headOf(await scene.journal.commit(old, messageRecord(id, 1)));
      const seen = (await scene.another.heads())[at.logId]!;
      const recordId = fresh("take");
      const taken = await scene.another.take(seen, { podId: "pod-2", host: "here", recordId });
      expect(taken).toMatchObject({
        logId: at.logId,
        incarnation: at.incarnation,
        owner: "pod-2",
        host: "here",
        term: at.term + 1,
        offset: at.offset + 1,
        recordId,
      });
      expect(await scene.now(at)).toEqual(taken);
      expect(await scene.journal.commit(at, messageRecord(id, 2))).toEqual({ type: "fenced" });
      headOf(await scene.another.commit(taken!, messageRecord(id, 2)));
      expect(await scene.journal.commit(at, messageRecord(id, 3))).toEqual({ type: "fenced" });
    });

    test("of two pods that take a log at once, one gets it", async () => {
      for (let round = 0; round < 5; round++) {
        const seen = (await scene.journal.heads())[scene.nextLog()]!;
        const tried = await Promise.all(
          [scene.journal, scene.another, scene.journal, scene.another].map((via, at) =>
            via.take(seen, { podId: `pod-${at}`, host: null, recordId: fresh("take") }),
          ),
        );
        const won = tried.filter((each) => each !== undefined);
        expect(won).toEqual([await scene.now(seen)]);
      }
    });

    test("a log that has moved since it was seen isn't taken", async () => {
      const seen = await scene.own();
      const id = fresh("session");
      const head = headOf(await scene.journal.commit(seen, messageRecord(id, 1)));
      const owner = { podId: "pod-2", host: null, recordId: fresh("take") };
      for (const other of [seen, ...elsewhere(head)]) {
        expect(await scene.journal.take(other, owner)).toBeUndefined();
      }
      expect(await scene.now(head)).toEqual(head);
    });

    test("O2: a pod that takes a log again that it got has it, once", async () => {
      const seen = (await scene.journal.heads())[scene.nextLog()]!;
      const owner = { podId: "pod-1", host: "h", recordId: fresh("take") };
      const first = await scene.journal.take(seen, owner);
      const again = await scene.journal.take(seen, owner);
      expect(again).toEqual({ ...first, beat: again!.beat });
      const head = headOf(await scene.journal.commit(again!, record()));
      expect(await scene.journal.take(seen, owner)).toBeUndefined();
      expect(await scene.now(head)).toEqual(head);
    });

    test("a pod that takes a log gets nothing once it has given it up again", async () => {
      const seen = (await scene.journal.heads())[scene.nextLog()]!;
      const owner = { podId: "pod-1", host: "h", recordId: fresh("take") };
      const taken = (await scene.journal.take(seen, owner))!;
      await scene.journal.release("pod-1", [taken]);
      expect(await scene.journal.take(seen, owner)).toBeUndefined();
      expect(await scene.now(taken)).toMatchObject({ owner: null, host: null, term: taken.term });
    });

    test("a beat moves own logs alone, and returns which those are and all heads", async () => {
      const mine = [await scene.own("beating"), await scene.own("beating")];
      const lost = await scene.own("beating");
      await take(scene.another, lost.logId, "another");
      const others = await scene.own("another");
      // A pod that has lost a log and got it again mustn't believe that it had it all along.
      const again = await scene.own("beating");
      await take(scene.journal, again.logId, "beating");
      const before = await scene.journal.heads();
      const asked = [mine[1]!, lost, others, mine[0]!, again];
      const still = mine.map(({ logId }) => logId);
      const after = before.map((each) =>
        still.includes(each.logId) ? { ...each, beat: each.beat + 1 } : each,
      );
      expect(await scene.journal.beat("beating", asked)).toEqual({ owned: still, heads: after });
      expect(await scene.journal.heads()).toEqual(after);
    });

    test("a log that was released has no owner, and only its owner releases it", async () => {
      const mine = await scene.own("leaving");
      const lost = await scene.own("leaving");
      const taken = await take(scene.another, lost.logId, "another");
      await scene.journal.release("leaving", [mine, lost]);
      await scene.journal.release("nobody", [taken]);
      await scene.journal.release("leaving", []);
      expect(await scene.now(mine)).toEqual({ ...mine, owner: null, host: null });
      expect(await scene.now(lost)).toEqual(taken);
      expect(await scene.journal.beat("leaving", [mine])).toMatchObject({ owned: [] });
      expect(await take(scene.another, mine.logId, "another")).toMatchObject({
        term: mine.term + 1,
      });
    });

    test("a beat doesn't come between an owner and its record", async () => {
      const head = await scene.own("pod-1");
      await scene.journal.beat("pod-1", [head]);
      const committed = await scene.journal.commit(head, messageRecord(fresh("session"), 1));
      expect(committed).toMatchObject({ head: { offset: head.offset + 1, beat: head.beat + 1 } });
    });
  });

  describe("fences", () => {
    test("O3: a record that stores nothing shows whose the log is, like any other", async () => {
      const head = await scene.own();
      const empty = { ...record({ entries: [], headers: [] }), recordId: fresh("empty") };
      const at = headOf(await scene.journal.commit(head, empty));
      expect(at).toMatchObject({ offset: head.offset + 1, recordId: empty.recordId });
      // Sent again, it is the same.
      expect(headOf(await scene.journal.commit(head, empty))).toEqual(at);
      await take(scene.another, at.logId, "pod-2");
      const next = { ...empty, recordId: fresh("empty") };
      expect(await scene.journal.commit(at, next)).toEqual({ type: "fenced" });
    });

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
      expect(await scene.now(head)).toEqual(head);
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
      expect(await scene.now(head)).toEqual(headOf(committed));
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
      expect(await scene.now(lost)).toEqual(taken);
      for (const [at, committed] of [
        [0, first],
        [2, last],
      ] as const) {
        expect(headOf(committed!)).toMatchObject({ offset: heads[at]!.offset + 1 });
        expect(await scene.now(heads[at]!)).toEqual(headOf(committed!));
        expect(await scene.journal.entries(ids[at]!, everything)).toHaveLength(3);
      }
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
      expect(await scene.now(heads[1]!)).toEqual(heads[1]);
      for (const committed of [first, last]) headOf(committed!);
      expect(await scene.journal.entries(ids[0]!, everything)).toHaveLength(1);
      expect(await scene.journal.entries(ids[2]!, everything)).toHaveLength(1);
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
  });
}
