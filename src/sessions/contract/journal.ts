import { afterAll, beforeAll, describe } from "vitest";
import { duplicatesContract } from "./duplicates.ts";
import { fencedReadsContract } from "./fenced-reads.ts";
import type { Journal } from "../log/journal.ts";
import { readingContract } from "./reading.ts";
import { recordsContract } from "./records.ts";
import { type JournalHarness, ownLogs } from "./journal-harness.ts";
import { stepsContract } from "./steps.ts";

/** A kind of journal, for the suite that every kind passes. */
export type JournalKind = {
  readonly name: string;
  /** How many logs to make, one for each test. Default 128. */
  readonly logs?: number;
  /** An empty one, and others as further processes would open it. */
  open(): Promise<{
    readonly journal: Journal;
    readonly another: () => Promise<Journal>;
    close(): Promise<void>;
  }>;
};

const usualLogs = 128;

/** What every journal promises beside its log. Each test has a log and sessions of its own. */
export function journalContract(kind: JournalKind): void {
  let opened: Awaited<ReturnType<JournalKind["open"]>>;
  let another: Journal;
  const scene: JournalHarness = {
    get journal() {
      return opened.journal;
    },
    get another() {
      return another;
    },
    ...ownLogs(() => opened.journal),
  };

  describe(`a journal ${kind.name}`, () => {
    beforeAll(async () => {
      opened = await kind.open();
      another = await opened.another();
      await opened.journal.create(kind.logs ?? usualLogs);
    });
    afterAll(() => opened.close());

    recordsContract(scene);
    fencedReadsContract(scene);
    duplicatesContract(scene);
    readingContract(scene);
    stepsContract(scene);
  });
}
