import { type FSWatcher, watch } from "node:fs";
import { channelListeners } from "../notifications.ts";
import { DatabaseSync, type StatementSync } from "./driver.ts";
import type { Commits } from "./thread.ts";

// A commit that is not visible this long after it was written is found by the next poll.
const lastCheckMs = 64;
// Under load there are thousands of commits: one check per millisecond is enough then.
const busyGapMs = 1;
// A commit this long after the last one is not load.
const quietMs = 5;

// A process that commits continuously learns of other commits with each of its own, so the file
// need not be checked too.
const ownGapMs = 3;
// The answer to a write tells of others' commits too, but may wait for another process.
const answerGapMs = 20;

/**
 * Calls listeners when any process has committed to the file. A change of the write-ahead log is
 * the signal. It comes before the commit is visible, so `data_version` is polled until it changes.
 * Our own connections touch the log once more after their commits, which avoids that wait. If files
 * cannot be watched, no call is made, and polling finds new work.
 */
export function watchCommits(
  path: string,
  /**
   * How long a check is unnecessary, because the writer thread reports commits. Called at every
   * change.
   */
  holdMs: () => number = () => 0,
): {
  subscribe(listener: () => void): () => void;
  close(): void;
} {
  const listeners = new Set<() => void>();
  let watching: { watcher: FSWatcher; connection: DatabaseSync; ask: StatementSync } | undefined;
  let timer: NodeJS.Timeout | undefined;
  let soon: NodeJS.Immediate | undefined;
  let held: NodeJS.Timeout | undefined;
  let seen: unknown;
  let hitMs = -Infinity;
  let notBeforeMs = 0;
  let closed = false;

  const version = (): unknown => {
    try {
      return watching?.ask.get()?.["data_version"];
    } catch {
      // Busy for a moment; the next check finds it.
      return seen;
    }
  };

  const check = (delayMs: number) => {
    timer = undefined;
    const current = version();
    if (current !== seen) {
      seen = current;
      const nowMs = performance.now();
      if (nowMs - hitMs < quietMs) notBeforeMs = nowMs + busyGapMs;
      hitMs = nowMs;
      for (const listener of listeners) listener();
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
      // The thread may answer long before that, and then this process's own commits must be known
      // as such before another's comes.
      held ??= setTimeout(release, Math.min(holding, ownGapMs) + 1).unref();
      return;
    }
    clearTimeout(timer);
    // One commit changes the log in many small steps: one check for those that came together.
    if (performance.now() >= notBeforeMs) soon ??= setImmediate(checkNow);
    // Too early; the doubling starts over, because this commit is not visible yet.
    else again(1, 2);
  };

  const checkNow = () => {
    soon = undefined;
    clearTimeout(timer);
    check(1);
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
      clearImmediate(soon);
      watching?.watcher.close();
      watching?.connection.close();
      watching = undefined;
    },
  };
}

/**
 * Distinguishes our own commits from those of other processes. The writer thread knows which are
 * others', and reports that with every answer. It is asked if the file has changed and this process
 * may have caused that.
 */
export function createCommitNotifications() {
  type Listener = (whose?: "own") => void;
  const listeners = new Set<Listener>();
  const channels = channelListeners();
  /** True if a write of ours was in progress since the last change of the file. */
  let wrote = false;
  let underWay = 0;
  /** When the thread last answered a write, or was sent one after a pause. */
  let busyMs = -Infinity;
  /** Listeners were called for others' commits that the thread has not seen yet. */
  let notified = false;

  const notify = (whose?: "own") => {
    for (const listener of listeners) listener(whose);
    // Our own writes name their channels. Those of others are unknown.
    if (whose !== "own") channels.notify();
  };

  return {
    channels,
    subscribe(listener: Listener, channel?: string): () => void {
      if (channel !== undefined) return channels.add(channel, listener);
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    /** The file has changed. Asks the thread whose commit it was. */
    changed(askThread: () => void): void {
      const surelyOthers = !wrote;
      wrote = false;
      notified = surelyOthers;
      // The thread is asked before listeners are called, so that a listener's own write is not
      // mistaken for this change.
      askThread();
      if (surelyOthers) notify();
    },
    /** Handles a report of the thread. */
    seen({ own, others }: Commits): void {
      const known = notified && !wrote;
      notified = false;
      if (others && !known) notify();
      else if (own && !others) notify("own");
    },
    /** How long the thread will report by itself, unless another process blocks it. */
    holdMs: (): number => busyMs + (underWay > 0 ? answerGapMs : ownGapMs) - performance.now(),
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
