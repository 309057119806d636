import { describe, expect, test } from "vitest";
import type { Ids } from "../../base/ids.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { fresh, headOf, messageRecord, take } from "./journal-harness.ts";
import { rich, createSqlJournalHarness } from "./sql-journal-harness.ts";

/** What a journal in SQL does when answers are lost. */
export function troubleContract(kind: StoreKind, ids: Ids): void {
  describe(`a journal in SQL on ${kind.name}, with store errors`, () => {
    const scene = createSqlJournalHarness(kind, ids);

    describe.each(["after", "before", "late"] as const)("an answer is lost %s", (when) => {
      test("O2: the same record at the same place is stored once", async () => {
        const head = await scene.own();
        const id = fresh("session");
        const first = rich(id, 1);
        scene.trouble = when;
        await expect(scene.journal.commit(head, first)).rejects.toMatchObject({
          code: "unknown_outcome",
        });
        const next = headOf(await scene.journal.commit(head, first));
        expect(next.offset).toBe(head.offset + 1);
        const stored = await scene.everythingOf(id);
        expect(stored).toMatchObject({
          header: first.headers[0],
          entries: [{ seq: 1 }],
          checkpoint: { body: "1" },
          users: [{ user_id: "ada", read_seq: 1 }],
          metadata: '{"seq":1}',
          tasks: [`${id}/task-1`],
        });
        if (when === "late") await scene.land();
        expect(await scene.everythingOf(id)).toEqual(stored);
        expect((await scene.sound.heads())[head.logId]).toEqual(next);
      });

      test("O7: the next owner finds it stored as a whole or never", async () => {
        const head = await scene.own("pod-1");
        const id = fresh("session");
        const at = headOf(await scene.journal.commit(head, rich(id, 1)));
        scene.trouble = when;
        await expect(scene.journal.commit(at, rich(id, 2, ["eve"]))).rejects.toMatchObject({
          code: "unknown_outcome",
        });
        const taken = await take(scene.sound, at.logId, "pod-2");
        const stored = await scene.everythingOf(id);
        const seq = when === "after" ? 2 : 1;
        expect(stored).toMatchObject({
          header: { lastSeq: seq },
          metadata: `{"seq":${seq}}`,
          users: [{ user_id: seq === 2 ? "eve" : "ada" }],
        });
        expect(stored.entries).toHaveLength(seq);
        // It lands only now that the log has another owner.
        if (when === "late") await scene.land();
        expect(await scene.everythingOf(id)).toEqual(stored);
        expect((await scene.sound.heads())[at.logId]).toEqual(taken);
        headOf(await scene.sound.commit(taken, rich(id, seq + 1)));
      });

      test("O7: sent again after another took over it is fenced, and nothing more of it stored", async () => {
        const head = await scene.own("pod-1");
        const id = fresh("session");
        const at = headOf(await scene.journal.commit(head, rich(id, 1)));
        const unsure = rich(id, 2, ["eve"]);
        scene.trouble = when;
        await expect(scene.journal.commit(at, unsure)).rejects.toMatchObject({
          code: "unknown_outcome",
        });
        const taken = await take(scene.sound, at.logId, "pod-2");
        const seq = when === "after" ? 3 : 2;
        headOf(await scene.sound.commit(taken, rich(id, seq, ["bob"])));
        const stored = await scene.everythingOf(id);
        expect(await scene.journal.commit(at, unsure)).toEqual({ type: "fenced" });
        if (when === "late") await scene.land();
        expect(await scene.everythingOf(id)).toEqual(stored);
      });

      test("O2: records of several logs that shared the write are each found by their resend", async () => {
        const heads = [await scene.own(), await scene.own(), await scene.own()];
        const ids = heads.map(() => fresh("session"));
        const records = ids.map((id) => rich(id, 1));
        const commit = (at: number) => scene.journal.commit(heads[at]!, records[at]!);
        const before = scene.writes;
        scene.trouble = when;
        const unsure = await Promise.allSettled([commit(0), commit(1), commit(2)]);
        expect(scene.writes).toBe(before + 1);
        for (const each of unsure) expect(each).toMatchObject({ status: "rejected" });
        // They need not be sent together again.
        const next = [await commit(0), ...(await Promise.all([commit(1), commit(2)]))].map(headOf);
        const stored = await Promise.all(ids.map((id) => scene.everythingOf(id)));
        for (const each of stored) {
          expect(each).toMatchObject({ header: { lastSeq: 1 }, entries: [{ seq: 1 }] });
          expect(each).toMatchObject({ checkpoint: { body: "1" }, users: [{ user_id: "ada" }] });
        }
        if (when === "late") await scene.land();
        expect(await Promise.all(ids.map((id) => scene.everythingOf(id)))).toEqual(stored);
        const now = await scene.sound.heads();
        expect(heads.map(({ logId }) => now[logId])).toEqual(next);
      });

      test("O7: of records that shared the write, the one whose log was taken is fenced", async () => {
        const heads = [await scene.own("pod-1"), await scene.own("pod-1")];
        const ids = heads.map(() => fresh("session"));
        const records = ids.map((id) => rich(id, 1));
        const commit = (at: number) => scene.journal.commit(heads[at]!, records[at]!);
        scene.trouble = when;
        await Promise.allSettled([commit(0), commit(1)]);
        const taken = await take(scene.sound, heads[1]!.logId, "pod-2");
        const lost = await scene.everythingOf(ids[1]!);
        const [kept, fenced] = await Promise.all([commit(0), commit(1)]);
        expect(fenced).toEqual({ type: "fenced" });
        if (when === "late") await scene.land();
        expect(await scene.everythingOf(ids[1]!)).toEqual(lost);
        expect((await scene.everythingOf(ids[0]!)).entries).toHaveLength(1);
        const now = await scene.sound.heads();
        expect(now[heads[0]!.logId]).toEqual(headOf(kept!));
        expect(now[heads[1]!.logId]).toEqual(taken);
      });

      test("O2: a take is resolved by taking again", async () => {
        const seen = (await scene.sound.heads())[scene.nextLog()]!;
        const owner = { podId: "pod-1", host: null, recordId: fresh("take") };
        scene.trouble = when;
        await expect(scene.journal.take(seen, owner)).rejects.toMatchObject({
          code: "unknown_outcome",
        });
        const taken = (await scene.journal.take(seen, owner))!;
        expect(taken).toMatchObject({ term: seen.term + 1, offset: seen.offset + 1 });
        const head = headOf(await scene.sound.commit(taken, messageRecord(fresh("session"), 1)));
        if (when === "late") await scene.land();
        expect((await scene.sound.heads())[seen.logId]).toEqual(head);
      });
    });
  });
}
