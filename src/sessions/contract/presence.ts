import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Log, Presence } from "../log/journal.ts";
import { headOf, messageRecord, fresh, ownLogs, take } from "./journal-harness.ts";

/** A kind of presence, with the log whose owners it shows. */
export type PresenceKind = {
  readonly name: string;
  open(): Promise<{
    readonly log: Log;
    readonly presence: Presence;
    close(): Promise<void>;
  }>;
};

/** What every presence promises. */
export function presenceContract(kind: PresenceKind): void {
  let opened: Awaited<ReturnType<PresenceKind["open"]>>;
  const { own } = ownLogs(() => opened.log);
  const seen = async () => (await opened.presence.beat("watching", [])).heads;

  describe(`presence ${kind.name}`, () => {
    beforeAll(async () => {
      opened = await kind.open();
      expect(await opened.presence.beat("first", [])).toEqual({ owned: [], heads: [] });
      await opened.log.create(16);
    });
    afterAll(() => opened.close());

    test("a beat moves own logs alone, and returns which those are and all heads", async () => {
      const { log, presence } = opened;
      const mine = [await own("beating"), await own("beating")];
      const lost = await own("beating");
      await take(log, lost.logId, "another");
      const others = await own("another");
      // A pod that has lost a log and got it again mustn't believe that it had it all along.
      const again = await own("beating");
      await take(log, again.logId, "beating");
      const before = await seen();
      const asked = [mine[1]!, lost, others, mine[0]!, again];
      const still = mine.map(({ logId }) => logId);
      const { owned, heads } = await presence.beat("beating", asked);
      expect(owned).toEqual(still);
      for (const [at, { beat, ...head }] of heads.entries()) {
        const { beat: last, ...known } = before[at]!;
        expect(head).toEqual(known);
        expect(beat > last).toBe(still.includes(at));
      }
      expect(await seen()).toEqual(heads);
      expect(heads).toMatchObject(await log.heads());
    });

    test("a pod that has released its log owns it no more", async () => {
      const { log, presence } = opened;
      const mine = await own("leaving");
      await log.release("leaving", [mine]);
      expect(await presence.beat("leaving", [mine])).toMatchObject({ owned: [] });
    });

    test("a beat doesn't come between an owner and its record", async () => {
      const { log, presence } = opened;
      const head = await own("pod-1");
      await presence.beat("pod-1", [head]);
      const committed = headOf(await log.commit(head, messageRecord(fresh("session"), 1)));
      expect(committed.offset).toBe(head.offset + 1);
      expect((await presence.beat("pod-1", [committed])).owned).toEqual([head.logId]);
    });
  });
}
