import { type FSWatcher, watch } from "node:fs";
import { DatabaseSync, type StatementSync } from "./driver.ts";

/**
 * Tells when any process has committed to the file. The write-ahead log's change is the signal; it
 * comes before the commit can be seen, so `data_version` is asked until it has moved. Our own
 * connections touch the log once more after their commits, which spares the wait for that. Where
 * files can't be watched this stays silent, and polling has to do.
 */
export function watchCommits(
  path: string,
  /** How long there is no need to look, because others tell. Asked at every change. */
  holdMs: () => number = () => 0,
): {
  subscribe(listener: () => void): () => void;
  close(): void;
} {
  const listeners = new Set<() => void>();
  let watching: { watcher: FSWatcher; connection: DatabaseSync; ask: StatementSync } | undefined;
  let timer: NodeJS.Timeout | undefined;
  let held: NodeJS.Timeout | undefined;
  let seen: unknown;
  let notBeforeMs = 0;
  let closed = false;

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
    notBeforeMs = performance.now() + (current === seen ? missGapMs : 1);
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
    const holding = holdMs();
    if (holding > 0) {
      held ??= setTimeout(release, holding + 1).unref();
      return;
    }
    clearTimeout(timer);
    if (performance.now() >= notBeforeMs) look(1);
    // Too early; the doubling starts anew, because this commit has yet to be seen.
    else again(1, 2);
  };

  const release = () => {
    held = undefined;
    changed();
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
      if (closed) return () => {};
      if (listeners.size === 0 && !watching) start();
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    close() {
      closed = true;
      listeners.clear();
      clearTimeout(timer);
      clearTimeout(held);
      watching?.watcher.close();
      watching?.connection.close();
      watching = undefined;
    },
  };
}

// A commit that can't be seen this long after it was written waits for the next poll.
const lastLookMs = 64;
// One commit changes the log in many small steps, and a look at each of them would be dear.
const missGapMs = 0.2;
