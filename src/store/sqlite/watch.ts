import { type FSWatcher, watch } from "node:fs";
import { DatabaseSync, type StatementSync } from "node:sqlite";

/**
 * Tells when any process has committed to the file. The write-ahead log's change is the signal; it
 * comes before the commit can be seen, so `data_version` is asked until it has moved. Where files
 * can't be watched this stays silent, and polling has to do.
 */
export function watchCommits(path: string): {
  subscribe(listener: () => void): () => void;
  close(): void;
} {
  const listeners = new Set<() => void>();
  let watching: { watcher: FSWatcher; connection: DatabaseSync; ask: StatementSync } | undefined;
  let timer: NodeJS.Timeout | undefined;
  let seen: unknown;

  const version = (): unknown => {
    try {
      return watching?.ask.get()?.["data_version"];
    } catch {
      // Busy for a moment; the next look will tell.
      return seen;
    }
  };

  const look = (delayMs: number) => {
    timer = undefined;
    const current = version();
    if (current !== seen) {
      seen = current;
      for (const listener of listeners) listener();
      // Under load commits come by the thousand: one look a millisecond is enough.
      again(1, lastLookMs);
    } else if (delayMs < lastLookMs) again(delayMs, delayMs * 2);
  };
  const again = (delayMs: number, nextMs: number) => {
    timer = setTimeout(look, delayMs, nextMs);
    timer.unref();
  };
  const changed = () => {
    if (timer === undefined) return look(1);
    // A look is due already; it starts its doubling anew, because this commit has yet to be seen.
    clearTimeout(timer);
    again(1, 2);
  };

  const start = () => {
    let connection: DatabaseSync | undefined;
    try {
      connection = new DatabaseSync(path, { readOnly: true });
      const ask = connection.prepare("pragma data_version");
      const watcher = watch(`${path}-wal`, { persistent: false }, changed);
      watcher.on("error", () => watcher.close());
      watching = { watcher, connection, ask };
      seen = version();
    } catch {
      connection?.close();
    }
  };
  return {
    subscribe(listener) {
      if (listeners.size === 0 && !watching) start();
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    close() {
      listeners.clear();
      clearTimeout(timer);
      watching?.watcher.close();
      watching?.connection.close();
      watching = undefined;
    },
  };
}

// A commit that can't be seen this long after it was written waits for the next poll.
const lastLookMs = 64;
