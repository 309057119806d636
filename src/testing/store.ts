import type { Database } from "../store/database.ts";
import { migrate } from "../store/migrate.ts";
import { sql } from "../store/sql.ts";
import { memoryDatabase } from "../store/sqlite/inline.ts";

/**
 * The store in memory, with its tables. It hints only after writes that changed something, as a
 * file does: otherwise pods that find nothing to claim would keep each other awake.
 */
export async function testStore(clock: { now(): number }): Promise<Database> {
  const database = memoryDatabase(clock);
  await migrate(database);
  const listeners = new Set<() => void>();
  let seen = 0;

  const hint = async (): Promise<void> => {
    const [row] = await database.read(sql`select total_changes() as changes`);
    const changes = Number(row!["changes"]);
    if (changes === seen) return;
    seen = changes;
    for (const listener of listeners) listener();
  };
  return {
    read: database.read,
    async write(statements) {
      const tables = await database.write(statements);
      await hint();
      return tables;
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    within: database.within,
    close: database.close,
  };
}
