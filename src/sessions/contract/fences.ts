import { describe, expect, test } from "vitest";
import type { Header } from "../conversation/header.ts";
import type { Head, Log } from "../log/journal.ts";
import {
  busyRecord,
  fresh,
  headOf,
  type LogHarness,
  messageRecord,
  record,
  take,
} from "./journal-harness.ts";

/** Whose records a log takes, and whose it doesn't. What it has taken is seen by what its next owner gets. */
export function fencesContract(scene: LogHarness): void {
  /** The busy sessions of a log, each with its last seq. */
  const busyAt = async (log: Log, head: Head) => {
    const { busy } = await log.recover(head);
    return Object.fromEntries(busy.map(({ sessionId, lastSeq }: Header) => [sessionId, lastSeq]));
  };

  describe("owners", () => {
    test("O1: an owner begins with a record of its own, and none of an old term follows it", async () => {
      const old = await scene.own("pod-1");
      const id = fresh("session");
      const at = headOf(await scene.log.commit(old, busyRecord(id, 1)));
      const seen = (await scene.another.heads())[at.logId]!;
      const recordId = fresh("take");
      const taken = await scene.another.take(seen, { podId: "pod-2", host: "here", recordId });
      expect(taken).toEqual({
        logId: at.logId,
        incarnation: at.incarnation,
        owner: "pod-2",
        host: "here",
        term: at.term + 1,
        offset: at.offset + 1,
        recordId,
      });
      await expect.poll(() => scene.now(at)).toEqual(taken);
      expect(await scene.log.commit(at, busyRecord(id, 2))).toEqual({ type: "fenced" });
      const next = headOf(await scene.another.commit(taken!, busyRecord(id, 2)));
      expect(await scene.log.commit(at, busyRecord(id, 3))).toEqual({ type: "fenced" });
      expect(await busyAt(scene.another, next)).toEqual({ [id]: 2 });
    });

    test("of two pods that take a log at once, one gets it", async () => {
      for (let round = 0; round < 5; round++) {
        const seen = (await scene.log.heads())[scene.nextLog()]!;
        const tried = await Promise.all(
          [scene.log, scene.another, scene.log, scene.another].map((via, at) =>
            via.take(seen, { podId: `pod-${at}`, host: null, recordId: fresh("take") }),
          ),
        );
        const won = tried.filter((each) => each !== undefined);
        await expect.poll(async () => [await scene.now(seen)]).toEqual(won);
      }
    });

    test("a log that has moved since it was seen isn't taken", async () => {
      const before = (await scene.log.heads())[scene.nextLog()]!;
      const seen = await take(scene.log, before.logId);
      const head = headOf(await scene.log.commit(seen, messageRecord(fresh("session"), 1)));
      const owner = { podId: "pod-2", host: null, recordId: fresh("take") };
      for (const earlier of [before, seen]) {
        expect(await scene.another.take(earlier, owner)).toBeUndefined();
      }
      await expect.poll(() => scene.now(head)).toEqual(head);
    });

    test("O2: a pod that takes a log again that it got has it, once", async () => {
      const seen = (await scene.log.heads())[scene.nextLog()]!;
      const owner = { podId: "pod-1", host: "h", recordId: fresh("take") };
      const first = await scene.log.take(seen, owner);
      expect(first).toMatchObject({ owner: "pod-1", term: seen.term + 1 });
      expect(await scene.log.take(seen, owner)).toEqual(first);
      const head = headOf(await scene.log.commit(first!, record()));
      expect(await scene.log.take(seen, owner)).toBeUndefined();
      await expect.poll(() => scene.now(head)).toEqual(head);
    });

    test("a pod that takes a log gets nothing once it has given it up again", async () => {
      const seen = (await scene.log.heads())[scene.nextLog()]!;
      const owner = { podId: "pod-1", host: "h", recordId: fresh("take") };
      const taken = (await scene.log.take(seen, owner))!;
      await scene.log.release("pod-1", [taken]);
      expect(await scene.log.take(seen, owner)).toBeUndefined();
      await expect
        .poll(() => scene.now(taken))
        .toMatchObject({ owner: null, host: null, term: taken.term });
    });

    test("a log that was released has no owner, and only its owner releases it", async () => {
      const mine = await scene.own("leaving");
      const lost = await scene.own("leaving");
      const taken = await take(scene.another, lost.logId, "another");
      await scene.log.release("leaving", [mine, lost]);
      await scene.log.release("stranger", [taken]);
      await scene.log.release("leaving", []);
      const { logId, incarnation, term } = mine;
      let free = mine;
      await expect
        .poll(async () => (free = await scene.now(mine)))
        .toMatchObject({ logId, incarnation, term, owner: null, host: null });
      await expect.poll(() => scene.now(lost)).toEqual(taken);
      const next = await take(scene.another, mine.logId, "another");
      expect(next).toMatchObject({ term: mine.term + 1, offset: free.offset + 1 });
    });

    test("what its owner had stored before it released the log is there for the next", async () => {
      const id = fresh("session");
      const head = headOf(await scene.log.commit(await scene.own("leaving"), busyRecord(id, 1)));
      await scene.log.release("leaving", [head]);
      const taken = await take(scene.another, head.logId, "next");
      expect(await busyAt(scene.another, taken)).toEqual({ [id]: 1 });
      expect(await scene.log.commit(head, busyRecord(id, 2))).toEqual({ type: "fenced" });
      headOf(await scene.another.commit(taken, busyRecord(id, 2)));
    });
  });

  describe("fences", () => {
    test("O3: a record that stores nothing shows whose the log is, like any other", async () => {
      const head = await scene.own();
      const empty = { ...record({ entries: [], headers: [] }), recordId: fresh("empty") };
      const at = headOf(await scene.log.commit(head, empty));
      expect(at).toMatchObject({ offset: head.offset + 1, recordId: empty.recordId });
      // Sent again, it is the same.
      expect(headOf(await scene.log.commit(head, empty))).toEqual(at);
      await take(scene.another, at.logId, "pod-2");
      const next = { ...empty, recordId: fresh("empty") };
      expect(await scene.log.commit(at, next)).toEqual({ type: "fenced" });
    });

    test("O3: what comes behind an earlier end of its log isn't stored", async () => {
      const ends = [await scene.own()];
      const id = fresh("session");
      for (const seq of [1, 2, 3]) {
        ends.push(headOf(await scene.log.commit(ends.at(-1)!, busyRecord(id, seq))));
      }
      const head = ends.pop()!;
      for (const at of ends) {
        expect(await scene.log.commit(at, busyRecord(id, 9))).toEqual({ type: "fenced" });
        expect(await scene.another.commit(at, busyRecord(fresh("session"), 1))).toEqual({
          type: "fenced",
        });
      }
      await expect.poll(() => scene.now(head)).toEqual(head);
      expect(await busyAt(scene.another, head)).toEqual({ [id]: 3 });
    });

    test("O2: the same record at the same place again is committed, in its place", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const same = busyRecord(id, 1);
      const committed = await scene.log.commit(head, same);
      for (const via of [scene.log, scene.another]) {
        expect(await via.commit(head, same)).toEqual(committed);
      }
      await expect.poll(() => scene.now(head)).toEqual(headOf(committed));
      expect(await busyAt(scene.another, headOf(committed))).toEqual({ [id]: 1 });
    });

    test("O2: the same record sent many times at once gets one place", async () => {
      const head = await scene.own();
      const same = messageRecord(fresh("session"), 1, 20);
      const answers = await Promise.all(
        [scene.log, scene.another, scene.log, scene.another].map((via) => via.commit(head, same)),
      );
      for (const answer of answers) expect(answer).toEqual(answers[0]);
      expect(headOf(answers[0]!).offset).toBe(head.offset + 1);
      await expect.poll(() => scene.now(head)).toEqual(headOf(answers[0]!));
    });

    test("O1: of different records for one place, one gets it", async () => {
      const head = await scene.own();
      const ids = Array.from({ length: 4 }, () => fresh("session"));
      const answers = await Promise.all(
        ids.map((id, at) =>
          (at % 2 === 0 ? scene.log : scene.another).commit(head, busyRecord(id, 1)),
        ),
      );
      const stored = ids.filter((_, at) => answers[at]!.type === "committed");
      expect(stored).toHaveLength(1);
      expect(answers.filter(({ type }) => type === "fenced")).toHaveLength(3);
      const busy = async () => busyAt(scene.log, await scene.now(head));
      await expect.poll(busy).toEqual({ [stored[0]!]: 1 });
    });

    test("O1: of records of several logs at once, one that is fenced undoes no other", async () => {
      const heads = [await scene.own(), await scene.own(), await scene.own()];
      const lost = heads[1]!;
      const taken = await take(scene.another, lost.logId, "pod-2");
      const ids = heads.map(() => fresh("session"));
      const [first, fenced, last] = await Promise.all(
        heads.map((head, at) => scene.log.commit(head, busyRecord(ids[at]!, 1))),
      );
      expect(fenced).toEqual({ type: "fenced" });
      await expect.poll(() => scene.now(lost)).toEqual(taken);
      expect(await busyAt(scene.log, taken)).toEqual({});
      for (const [at, committed] of [
        [0, first],
        [2, last],
      ] as const) {
        expect(headOf(committed!)).toMatchObject({ offset: heads[at]!.offset + 1 });
        await expect.poll(() => scene.now(heads[at]!)).toEqual(headOf(committed!));
        expect(await busyAt(scene.log, headOf(committed!))).toEqual({ [ids[at]!]: 1 });
      }
    });

    test("O2: a record that was stored isn't stored again behind a later one", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const first = busyRecord(id, 1);
      const next = headOf(await scene.log.commit(head, first));
      const last = headOf(await scene.log.commit(next, busyRecord(id, 2)));
      const answers = [{ type: "fenced" }, { type: "committed", head: next }];
      expect(answers).toContainEqual(await scene.log.commit(head, first));
      await expect.poll(() => scene.now(head)).toEqual(last);
      expect(await busyAt(scene.another, last)).toEqual({ [id]: 2 });
    });
  });
}
