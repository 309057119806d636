import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../store/database.ts";
import type { Limiter } from "../../throttles/limiter/limiter.ts";
import {
  type AcquireOptions,
  priorities,
  type Priority,
} from "../../throttles/limiter/wait-queue.ts";
import type { Throttles } from "../../throttles/registry.ts";
import { unparkDue } from "../sql/claim.ts";
import { countReady, nextDue } from "../sql/inspect.ts";
import type { TaskHandler } from "../task.ts";
import type { TaskThrottle } from "./throttle.ts";

/** The names whose tasks wait for the same permits, with the same priority. */
export type Line = {
  readonly throttle: TaskThrottle;
  readonly names: string[];
  /** What its tasks ask for, as far as that is known before they are claimed. */
  readonly asked: AcquireOptions;
  /** Whether others wait for the same permits who are less urgent. */
  readonly before: boolean;
  /** Whether others wait for the same permits who are more urgent. */
  readonly after: boolean;
  /** How many of its tasks are believed to wait. */
  waiting: number;
};

/** The lines of a pod's handlers, the most urgent first. Those with keys of the input are apart. */
export function linesOf(handlers: Iterable<TaskHandler>): { fixed: Line[]; byInput: Line[] } {
  const fixed = new Map<string, Line>();
  const byInput = new Map<string, Line>();
  const throttled = [...handlers].flatMap(({ name, throttle }) =>
    throttle ? [{ name, throttle }] : [],
  );
  throttled.sort((one, other) => rankOf(one.throttle) - rankOf(other.throttle));
  for (const [nth, { name, throttle }] of throttled.entries()) {
    const { declared, key, priority, estimate } = throttle;
    const isFixed = typeof key === "string";
    const at = JSON.stringify([declared.name, ...(isFixed ? [key, rankOf(throttle)] : [])]);
    const lines = isFixed ? fixed : byInput;
    const line = lines.get(at);
    if (line) {
      line.names.push(name);
      continue;
    }
    const later = throttled.slice(nth + 1).some((other) => isBefore(throttle, other.throttle));
    const earlier = throttled.slice(0, nth).some((other) => isBefore(other.throttle, throttle));
    lines.set(at, {
      throttle,
      names: [name],
      asked: { priority, ...(typeof estimate === "number" && { estimate }) },
      before: isFixed && later,
      after: isFixed && earlier,
      waiting: 0,
    });
  }
  return { fixed: [...fixed.values()], byInput: [...byInput.values()] };
}

function rankOf({ priority = "batch" }: TaskThrottle): number {
  return priorities.indexOf(priority satisfies Priority);
}

function isBefore(one: TaskThrottle, other: TaskThrottle): boolean {
  const same = one.declared.name === other.declared.name && one.key === other.key;
  return same && rankOf(one) < rankOf(other);
}

/** Finds limiters, and hears of room in each of them. */
export function createLimiters(throttles: Throttles, onRoom: () => void) {
  const heard = new WeakSet<Limiter>();
  let stopped = false;
  const hear = () => {
    if (!stopped) onRoom();
  };
  return {
    of({ declared }: TaskThrottle, key: string): Limiter {
      const limiter = throttles.of(declared, key);
      if (!heard.has(limiter)) limiter.onRoom(hear);
      heard.add(limiter);
      return limiter;
    },
    keep: throttles.keep,
    /** All that are known of a throttle, whatever their key. */
    allOf: ({ declared }: TaskThrottle): Limiter[] => throttles.allOf(declared.name),
    stop(): void {
      stopped = true;
      for (const limiter of throttles.all()) limiter.behindGate(0);
    },
  };
}

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
