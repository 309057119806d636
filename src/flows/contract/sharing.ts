import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { Database } from "../../store/database.ts";
import type { StoreKind } from "../../store/contract/database.ts";
import { flow } from "../flow.ts";
import { openRuns, type RunsHarness } from "./harness.ts";

/** How many commits it takes to store what many runs do, on every store. */
export function sharingContract(kind: StoreKind): void {
  describe(`runs of one pod on ${kind.name}`, () => {
    let runs: RunsHarness;
    beforeEach(async () => {
      runs = await openRuns(kind);
    });
    afterEach(() => runs.close());

    test("share the commits that store their transitions", async () => {
      const together = 50;
      const begin: (() => void)[] = [];
      const short = flow("short", { version: 1 })
        .to("wait", () => new Promise<void>((resolve) => begin.push(resolve)))
        .to("one", () => ({ one: 1 }))
        .to("two", () => ({ two: 2 }))
        .to("three", () => ({ three: 3 }))
        .end();
      let commits = 0;
      const database: Database = {
        ...runs.database,
        write(statements, options) {
          if (runs.writesRuns(statements)) commits++;
          return runs.database.write(statements, options);
        },
      };
      await runs.pod("pod-1", [short], { database, capacity: { slots: together, target: 1 } });
      const started = [];
      for (let count = 0; count < together; count++) started.push(await runs.start(short, count));
      await runs.until("all of them run", () => begin.length === together);
      expect(commits).toBe(0);

      begin.forEach((go) => go());

      for (const run of started) {
        expect(await runs.ended(run)).toMatchObject({ output: { one: 1, two: 2, three: 3 } });
      }
      // Each was stored four times. A commit for each of those would be 200 of them.
      expect(commits).toBeGreaterThanOrEqual(4);
      expect(commits).toBeLessThanOrEqual(together);
    });
  });
}
