/**
 * Refusals right behind a commit: a client that has stored a part of what it asked for, because the key of
 * another part was taken, is refused when it asks on. What it is told then must not deny what is stored.
 */
import { FlotillaError } from "../../src/base/errors.ts";
import type { Database } from "../../src/store/database.ts";
import { intentOf } from "./kinds.ts";
import type { World } from "./world.ts";

const share = 0.3;

export function refusedBehindCommits(
  world: World,
  database: Database,
  { untilMs }: { untilMs: number },
): Database {
  let refusals = 0;
  return {
    ...database,
    async write(statements, options) {
      if (refusals > 0) {
        refusals--;
        world.count("fault: refused behind a commit");
        const code = world.pick(["store_busy", "store_unavailable"] as const);
        throw new FlotillaError(code, "simulated: refused right behind a commit");
      }
      const tables = await database.write(statements, options);
      const { kind, rows } = intentOf(statements);
      const isPart = kind === "enqueue" && tables[0]!.length > 0 && tables[0]!.length < rows.length;
      if (isPart && world.scheduler.nowMs < untilMs && world.chance(share)) {
        refusals = world.between(1, 3);
      }
      return tables;
    },
  };
}
