import { expect, test } from "vitest";
import { hotStatements } from "../tasks/contract/hot.ts";
import { planning } from "../store/contract/planning.ts";

const ours = ["failedAfter", "failedSince", "failedTasks", "stepTasks", "takeStep", "discardTasks"];
const fill = (status: string) => `insert into flotilla.task (name, status)
  select 'a', '${status}' from generate_series(1, 5000)`;
const planOf = planning([fill("completed"), "analyze flotilla.task", fill("failed")]);

test("Postgres goes to failed tasks directly, also if it believes that there are none", async () => {
  for (const name of ours) {
    for (const statement of [hotStatements[name]!].flat()) {
      const plan = await planOf(statement);
      // An index without a condition is one that is read from its beginning to its end.
      expect(plan).not.toMatch(
        /Index (Only )?Scan using task_failed\w* on task.*\n(?! *Index Cond)/,
      );
      expect(plan).not.toMatch(/Seq Scan on task\b/);
    }
  }
});
