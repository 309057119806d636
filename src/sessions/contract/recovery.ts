import { describe, expect, test } from "vitest";
import {
  busyRecord,
  entry,
  fresh,
  header,
  headOf,
  type LogHarness,
  record,
  take,
  turn,
} from "./journal-harness.ts";

const answerBytes = 1024 * 1024;

/** What a log gives to a new owner, and how much it takes at once. */
export function recoveryContract(scene: LogHarness): void {
  describe("a new owner", () => {
    test("gets what is busy in its log, until it isn't any more", async () => {
      let head = await scene.own("pod-1");
      const ids = [fresh("session"), fresh("session"), fresh("session")];
      const compacting = header(ids[1]!, {
        epoch: 4,
        work: {
          type: "compaction",
          epoch: 4,
          attempt: 1,
          lost: 0,
          agent: "helper",
          runner: null,
          toSeq: 1,
          tokens: 0,
        },
      });
      const answering = header(ids[0]!, { epoch: 1, work: turn() });
      const headers = [answering, compacting, header(ids[2]!)];
      head = headOf(await scene.log.commit(head, record({ headers })));
      headOf(await scene.log.commit(await scene.own(), busyRecord(fresh("session"), 1)));
      const next = await take(scene.another, head.logId, "pod-2");
      const { busy } = await scene.another.recover(next);
      expect(busy).toHaveLength(2);
      expect(busy).toEqual(expect.arrayContaining([answering, compacting]));
      const idle = record({ headers: [header(ids[0]!, { epoch: 1 })] });
      headOf(await scene.another.commit(next, idle));
      const last = await take(scene.log, head.logId, "pod-3");
      expect(await scene.log.recover(last)).toEqual({ busy: [compacting] });
      expect(await scene.log.recover(await scene.own())).toEqual({ busy: [] });
    });

    test("gets nothing of what was deleted", async () => {
      const head = await scene.own();
      const id = fresh("session");
      const next = headOf(await scene.log.commit(head, busyRecord(id, 1)));
      const gone = header(id, { lastSeq: 1, epoch: 1, status: "deleted", work: turn() });
      headOf(await scene.log.commit(next, record({ headers: [gone] })));
      const taken = await take(scene.another, head.logId, "pod-2");
      expect(await scene.another.recover(taken)).toEqual({ busy: [] });
    });
  });

  describe("the size of a record", () => {
    const said = (sessionId: string, bytes: number) =>
      busyRecord(sessionId, 1, {
        entries: [entry(sessionId, 1, { parts: [{ type: "text", text: "a".repeat(bytes) }] })],
      });

    test("an answer of 1 MiB is taken", async () => {
      const head = await scene.own();
      expect(scene.log.maxRecordBytes).toBeGreaterThan(2 * answerBytes);
      const committed = await scene.log.commit(head, said(fresh("session"), answerBytes));
      expect(headOf(committed).offset).toBe(head.offset + 1);
    });

    test("one of more bytes than the log takes is refused, and nothing of it is stored", async () => {
      const { maxRecordBytes } = scene.log;
      if (maxRecordBytes === Infinity) return;
      const head = await scene.own();
      const [large, small] = [fresh("session"), fresh("session")];
      await expect(scene.log.commit(head, said(large, maxRecordBytes))).rejects.toMatchObject({
        code: "payload_too_large",
      });
      await expect.poll(() => scene.now(head)).toEqual(head);
      const next = headOf(await scene.log.commit(head, busyRecord(small, 1)));
      const taken = await take(scene.another, next.logId, "pod-2");
      const { busy } = await scene.another.recover(taken);
      expect(busy.map(({ sessionId }) => sessionId)).toEqual([small]);
    });
  });
}
