import { closeSync, existsSync, openSync } from "node:fs";

/**
 * Makes the file of a database before SQLite does, for its owner alone. SQLite takes an empty file for a
 * new database, and gives what it makes beside it, `-wal` and `-shm`, the same permissions.
 */
export function makePrivate(path: string): void {
  if (existsSync(path)) return;
  try {
    closeSync(openSync(path, "a", 0o600));
  } catch {
    // SQLite meets the same, and its words for it are known.
  }
}
