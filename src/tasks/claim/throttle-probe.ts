import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../store/database.ts";
import { unparkDue } from "../sql/claim.ts";
import { countReady, nextDue } from "../sql/throttle.ts";
import type { Line } from "./throttle-demand.ts";

// Hints come as fast as tasks do.
const leastMs = 50;
const countMost = 200;

/**
 * Counts what waits at gates that are shut: no claim asks for it, and unless somebody says that it is
 * there, this pod is given no permits to claim it with.
 */
export function createProbing(parts: {
  database: Database;
  clock: Clock;
  pollMs: number;
  lines: readonly Line[];
  isOpen: (line: Line) => boolean;
  /** Told what has been counted. */
  onCounted: (line: Line) => void;
}) {
  const { database, clock, pollMs, lines, isOpen } = parts;
  let probedMs = -Infinity;
  let busy = false;
  let hinted = false;
  let stopped = false;
  let cancelLater: (() => void) | undefined;

  const probe = async (which: readonly Line[], most: number): Promise<void> => {
    busy = true;
    probedMs = clock.monotonic();
    try {
      // What has become due is found by claims, and there may be none.
      const names = which.flatMap((line) => line.names);
      const statements = [unparkDue(), countReady(names, most), nextDue()];
      const [, counted, due] = await database.write(statements);
      const ready = new Map(counted!.map((row) => [row["name"] as string, Number(row["ready"])]));
      if (stopped) return;
      const dueInMs = Number(due![0]?.["wait_ms"] ?? Infinity);
      if (dueInMs < pollMs) lookIn(Math.max(leastMs, dueInMs), most);
      for (const line of which) {
        line.waiting = line.names.reduce((sum, name) => sum + (ready.get(name) ?? 0), 0);
        parts.onCounted(line);
      }
    } catch {
      // The next poll looks again.
    } finally {
      busy = false;
      if (hinted && !stopped) lookIn(leastMs, most);
      hinted = false;
    }
  };

  const lookIn = (delayMs: number, most: number): void => {
    cancelLater?.();
    cancelLater = clock.after(delayMs, () => look(most));
  };

  /** Some are looked at whenever something may have come, others to know how many wait by now. */
  const look = (most: number): void => {
    // What comes while it is counted may have come too late to be counted.
    if (busy) hinted = true;
    if (stopped || busy) return;
    cancelLater?.();
    cancelLater = undefined;
    const sinceMs = clock.monotonic() - probedMs;
    const unknown = lines.filter((line) => line.waiting === 0 && (line.before || !isOpen(line)));
    const known = sinceMs >= pollMs / 2 ? lines.filter((line) => line.waiting > 0) : [];
    if (unknown.length > 0 && sinceMs < leastMs) {
      return lookIn(leastMs - sinceMs, most);
    }
    const which = [...unknown, ...known];
    if (which.length > 0) void probe(which, Math.max(1, Math.min(most, countMost)));
  };

  return {
    look,
    stop(): void {
      stopped = true;
      cancelLater?.();
    },
  };
}
