import type { Clock } from "../base/clock.ts";
import type { Database } from "../store/database.ts";
import { unparkDue } from "./statements/claim.ts";
import { countReady } from "./statements/throttle.ts";
import type { Line } from "./throttle-lines.ts";

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
  let stopped = false;
  let cancelLater: (() => void) | undefined;

  const probe = async (which: readonly Line[], most: number): Promise<void> => {
    busy = true;
    probedMs = clock.monotonic();
    try {
      // What has become due is found by claims, and there may be none.
      const names = which.flatMap((line) => line.names);
      const [, counted] = await database.write([unparkDue(), countReady(names, most)]);
      const ready = new Map(counted!.map((row) => [row["name"] as string, Number(row["ready"])]));
      if (stopped) return;
      for (const line of which) {
        line.waiting = line.names.reduce((sum, name) => sum + (ready.get(name) ?? 0), 0);
        parts.onCounted(line);
      }
    } catch {
      // The next poll looks again.
    } finally {
      busy = false;
    }
  };

  /** Some are looked at whenever something may have come, others to know how many wait by now. */
  const look = (most: number): void => {
    if (stopped || busy) return;
    cancelLater?.();
    cancelLater = undefined;
    const sinceMs = clock.monotonic() - probedMs;
    const unknown = lines.filter((line) => line.waiting === 0 && (line.before || !isOpen(line)));
    const known = sinceMs >= pollMs / 2 ? lines.filter((line) => line.waiting > 0) : [];
    if (unknown.length > 0 && sinceMs < leastMs) {
      cancelLater = clock.after(leastMs - sinceMs, () => look(most));
      return;
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
