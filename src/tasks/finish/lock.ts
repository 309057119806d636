import { DatabaseSync } from "../../store/sqlite/driver.ts";
import { makePrivate } from "../../store/sqlite/sqlite.ts";

/**
 * Locks a file for as long as this process lives, or gives undefined where another holds it. The lock
 * is SQLite's, so it goes with the process however that ends, and nobody has to judge who is alive.
 */
export function lockFile(path: string): { release(): void } | undefined {
  makePrivate(path);
  const db = new DatabaseSync(path, { timeout: 0 });
  try {
    db.exec("begin exclusive");
  } catch (error) {
    db.close();
    if (isHeld(error)) return undefined;
    throw error;
  }
  return { release: () => db.close() };
}

const busy = 5;

function isHeld(error: unknown): boolean {
  return error instanceof Error && "errcode" in error && error.errcode === busy;
}
