import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Log } from "../log/journal.ts";
import { fencesContract } from "./fences.ts";
import { type LogHarness, ownLogs } from "./journal-harness.ts";
import { recoveryContract } from "./recovery.ts";

/** A kind of log, for the suite that every kind passes. */
export type LogKind = {
  readonly name: string;
  /** Logs that nothing has made yet, and the same as further processes would open them. */
  open(): Promise<{
    readonly log: Log;
    readonly another: () => Promise<Log>;
    close(): Promise<void>;
  }>;
};

const logs = 32;

/** What every log promises, as far as it can be seen without other reads. */
export function logContract(kind: LogKind): void {
  let opened: Awaited<ReturnType<LogKind["open"]>>;
  let another: Log;
  const scene: LogHarness = {
    get log() {
      return opened.log;
    },
    get another() {
      return another;
    },
    ...ownLogs(() => opened.log),
  };

  describe(`a log ${kind.name}`, () => {
    beforeAll(async () => {
      opened = await kind.open();
      another = await opened.another();
      expect(await another.heads()).toEqual([]);
      await Promise.all(
        [logs, logs + 1, logs + 2].map((count, at) =>
          (at === 1 ? another : opened.log).create(count),
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
      expect(await scene.log.heads()).toEqual(made);
    });

    fencesContract(scene);
    recoveryContract(scene);
  });
}
