/**
 * Refusals right behind a commit: a client that has stored a part of what it asked for, because the key of
 * another part was taken, is refused when it asks on. What it is told then must not deny what is stored.
 */
import { FlotillaError } from "../../src/base/errors.ts";
import { findKeys, insertTasks } from "../../src/tasks/sql/enqueue.ts";
import type { Database } from "../../src/store/database.ts";
import type { Statement } from "../../src/store/sql.ts";
import { intentOf } from "./kinds.ts";
import type { World } from "./world.ts";

const share = 0.3;
const inserts = insertTasks([]).strings;
const findsKeys = findKeys([]).strings;

export function refusedBehindCommits(
  world: World,
  database: Database,
  { untilMs }: { untilMs: number },
): Database {
  let refusals = 0;
  /** What a call asked for and an earlier write of it hasn't stored. */
  let left = new Set<unknown>();
  const asksOn = (statements: readonly Statement[]): boolean =>
    statements.some(({ strings }) => strings === findsKeys) ||
    intentOf(statements).rows.some((row) => left.has(row["task_id"]));
  return {
    ...database,
    async write(statements, options) {
      if (refusals > 0 && asksOn(statements)) {
        refusals--;
        world.count("fault: refused behind a commit");
        const code = world.pick(["store_busy", "store_unavailable"] as const);
        throw new FlotillaError(code, "simulated: refused right behind a commit");
      }
      const tables = await database.write(statements, options);
      const { kind, rows } = intentOf(statements);
      if (kind !== "enqueue") return tables;
      const stored = tables[statements.findIndex(({ strings }) => strings === inserts)]!;
      const isPart = stored.length > 0 && stored.length < rows.length;
      if (isPart && world.scheduler.nowMs < untilMs && world.chance(share)) {
        refusals = world.between(1, 3);
        const ids = new Set(stored.map((row) => row["task_id"]));
        left = new Set(rows.map((row) => row["task_id"]).filter((taskId) => !ids.has(taskId)));
      }
      return tables;
    },
  };
}
