import { type FSWatcher, watch } from "node:fs";
import { channelListeners } from "../notifications.ts";
import { DatabaseSync, type StatementSync } from "./driver.ts";
import type { Commits } from "./thread.ts";

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

  const check = (delayMs: number) => {
    timer = undefined;
    const current = version();
    notBeforeMs = performance.now() + (current === seen ? missGapMs : 1);
    if (current !== seen) {
      seen = current;
      for (const listener of listeners) listener();
      // Under load commits come by the thousand: one look a millisecond is enough.
      again(1, lastCheckMs);
    } else if (delayMs < lastCheckMs) again(delayMs, delayMs * 2);
  };
  const again = (delayMs: number, nextMs: number) => {
    timer = setTimeout(check, delayMs, nextMs);
    timer.unref();
  };
  const changed = () => {
    const holding = holdMs();
    if (holding > 0) {
      held ??= setTimeout(release, holding + 1).unref();
      return;
    }
    clearTimeout(timer);
    if (performance.now() >= notBeforeMs) check(1);
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
const lastCheckMs = 64;
// One commit changes the log in many small steps, and a look at each of them would be dear.
const missGapMs = 0.2;

// Whoever commits on and on is told of others with every commit, so the file needn't be looked at too.
const ownGapMs = 3;

/**
 * Tells our own commits from those of others. The thread that writes knows which are others', and says so
 * with every answer; it is asked where the file has changed and this process may have done that.
 */
export function createCommitNotifications() {
  type Listener = (whose?: "own") => void;
  const listeners = new Set<Listener>();
  const channels = channelListeners();
  /** Whether a write of ours was under way since the last change of the file. */
  let wrote = false;
  let underWay = 0;
  /** When the thread last answered a write, or was given one after a pause. */
  let busyMs = -Infinity;
  /** Listeners were told of others' commits, which the thread has yet to see. */
  let notified = false;

  const notify = (whose?: "own") => {
    for (const listener of listeners) listener(whose);
    // Which of our own writes carry letters is known, and whom they are for. Of others' it isn't.
    if (whose !== "own") channels.notify();
  };

  return {
    channels,
    subscribe(listener: Listener, channel?: string): () => void {
      if (channel !== undefined) return channels.add(channel, listener);
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    /** Somebody has committed. Asks the thread where it can't be told who. */
    changed(askThread: () => void): void {
      const surelyOthers = !wrote;
      wrote = false;
      notified = surelyOthers;
      // Asked before anybody is told: what a listener then writes can't have seen less than this.
      askThread();
      if (surelyOthers) notify();
    },
    /** What the thread has seen by now. */
    seen({ own, others }: Commits): void {
      const known = notified && !wrote;
      notified = false;
      if (others && !known) notify();
      else if (own && !others) notify("own");
    },
    /** For how long the thread will tell by itself, unless somebody else keeps it waiting. */
    holdMs: (): number => busyMs + ownGapMs - performance.now(),
    around<Answer>(write: Promise<Answer>): Promise<Answer> {
      wrote = true;
      if (underWay++ === 0) busyMs = performance.now();
      return write.finally(() => {
        underWay--;
        busyMs = performance.now();
        wrote = true;
      });
    },
    close(): void {
      listeners.clear();
      channels.clear();
    },
  };
}
