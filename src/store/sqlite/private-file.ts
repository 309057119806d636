import { closeSync, existsSync, openSync } from "node:fs";

/**
 * Creates the database file before SQLite does, readable only by its owner. SQLite treats an empty
 * file as a new database, and gives `-wal` and `-shm` the same permissions.
 */
export function makePrivate(path: string): void {
  if (existsSync(path)) return;
  try {
    closeSync(openSync(path, "a", 0o600));
  } catch {
    // SQLite runs into the same error, and reports it in a known form.
  }
}
