import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { fencesContract } from "./fences.ts";
import type { Journal } from "../log/journal.ts";
import { readingContract } from "./reading.ts";
import { recordsContract } from "./records.ts";
import { type JournalHarness, take } from "./journal-harness.ts";
import { stepsContract } from "./steps.ts";

/** A kind of journal, for the suite that every kind passes. */
export type JournalKind = {
  readonly name: string;
  /** An empty one, and others as further processes would open it. */
  open(): Promise<{
    readonly journal: Journal;
    readonly another: () => Promise<Journal>;
    close(): Promise<void>;
  }>;
};

const logs = 128;

/** What every journal promises. Each test has a log and sessions of its own. */
export function journalContract(kind: JournalKind): void {
  let opened: Awaited<ReturnType<JournalKind["open"]>>;
  let another: Journal;
  let used = 0;
  const scene: JournalHarness = {
    get journal() {
      return opened.journal;
    },
    get another() {
      return another;
    },
    nextLog: () => used++,
    own: (podId) => take(opened.journal, used++, podId),
    now: async ({ logId }) => (await opened.journal.heads())[logId]!,
  };

  describe(`a journal ${kind.name}`, () => {
    beforeAll(async () => {
      opened = await kind.open();
      another = await opened.another();
      expect(await another.heads()).toEqual([]);
      await Promise.all(
        [logs, logs + 1, logs + 2].map((count, at) =>
          (at === 1 ? another : opened.journal).create(count),
        ),
      );
    });
    afterAll(() => opened.close());

    test("logs are made once, in full, by any number of pods", async () => {
      const made = await scene.another.heads();
      expect([logs, logs + 1, logs + 2]).toContain(made.length);
      expect(made.map(({ logId }) => logId)).toEqual(made.map((_, at) => at));
      expect(new Set(made.map(({ incarnation }) => incarnation)).size).toBe(made.length);
      await scene.another.create(3);
      expect(await scene.journal.heads()).toEqual(made);
    });

    recordsContract(scene);
    fencesContract(scene);
    readingContract(scene);
    stepsContract(scene);
  });
}
