import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../store/database.ts";
import type { Limiter } from "../../throttles/limiter/limiter.ts";
import {
  type AcquireOptions,
  priorities,
  type Priority,
} from "../../throttles/limiter/wait-queue.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import { unparkDue } from "../sql/claim.ts";
import { countReady, nextDue } from "../sql/inspect.ts";
import type { TaskHandler } from "../task.ts";
import type { TaskThrottle } from "./throttle.ts";

/** The names whose tasks wait for the same permits, with the same priority. */
export type ThrottleDemand = {
  readonly throttle: TaskThrottle;
  readonly names: string[];
  /** What its tasks ask for, as far as that is known before they are claimed. */
  readonly acquireOptions: AcquireOptions;
  /** Whether others wait for the same permits who are less urgent. */
  readonly hasLessUrgent: boolean;
  /** Whether others wait for the same permits who are more urgent. */
  readonly hasMoreUrgent: boolean;
  /** How many of its tasks are believed to wait. */
  waiting: number;
};

/** The lines of a pod's handlers, the most urgent first. Those with keys of the input are apart. */
export function demandsOf(handlers: Iterable<TaskHandler>): {
  fixed: ThrottleDemand[];
  byInput: ThrottleDemand[];
} {
  const fixed = new Map<string, ThrottleDemand>();
  const byInput = new Map<string, ThrottleDemand>();
  const throttled = [...handlers].flatMap(({ name, throttle }) =>
    throttle ? [{ name, throttle }] : [],
  );
  throttled.sort((one, other) => rankOf(one.throttle) - rankOf(other.throttle));
  for (const [nth, { name, throttle }] of throttled.entries()) {
    const { declared, key, priority, estimate } = throttle;
    const isFixed = typeof key === "string";
    const at = JSON.stringify([declared.name, ...(isFixed ? [key, rankOf(throttle)] : [])]);
    const demands = isFixed ? fixed : byInput;
    const demand = demands.get(at);
    if (demand) {
      demand.names.push(name);
      continue;
    }
    const later = throttled.slice(nth + 1).some((other) => isBefore(throttle, other.throttle));
    const earlier = throttled.slice(0, nth).some((other) => isBefore(other.throttle, throttle));
    demands.set(at, {
      throttle,
      names: [name],
      acquireOptions: { priority, ...(typeof estimate === "number" && { estimate }) },
      hasLessUrgent: isFixed && later,
      hasMoreUrgent: isFixed && earlier,
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
export function createLimiters(throttles: ThrottleRegistry, onPermits: () => void) {
  const subscribed = new WeakSet<Limiter>();
  let stopped = false;
  const notify = () => {
    if (!stopped) onPermits();
  };
  return {
    of({ declared }: TaskThrottle, key: string): Limiter {
      const limiter = throttles.of(declared, key);
      if (!subscribed.has(limiter)) limiter.onFreePermits(notify);
      subscribed.add(limiter);
      return limiter;
    },
    keep: throttles.keep,
    /** All that are known of a throttle, whatever their key. */
    allOf: ({ declared }: TaskThrottle): Limiter[] => throttles.allOf(declared.name),
    stop(): void {
      stopped = true;
      for (const limiter of throttles.all()) limiter.setBlockedTasks(0);
    },
  };
}

// Hints come as fast as tasks do.
const minPollGapMs = 50;
const maxCounted = 200;

/**
 * Counts what waits at gates that are shut: no claim asks for it, and unless somebody says that it is
 * there, this pod is given no permits to claim it with.
 */
export function createDemandPoll(parts: {
  database: Database;
  clock: Clock;
  pollMs: number;
  demands: readonly ThrottleDemand[];
  hasPermits: (demand: ThrottleDemand) => boolean;
  /** Told what has been counted. */
  onCounted: (demand: ThrottleDemand) => void;
}) {
  const { database, clock, pollMs, demands, hasPermits } = parts;
  let countedMs = -Infinity;
  let busy = false;
  let notified = false;
  let stopped = false;
  let cancelLater: (() => void) | undefined;

  const count = async (which: readonly ThrottleDemand[], maxCount: number): Promise<void> => {
    busy = true;
    countedMs = clock.monotonic();
    try {
      // What has become due is found by claims, and there may be none.
      const names = which.flatMap((demand) => demand.names);
      const statements = [unparkDue(), countReady(names, maxCount), nextDue()];
      const [, counted, due] = await database.write(statements);
      const ready = new Map(counted!.map((row) => [row["name"] as string, Number(row["ready"])]));
      if (stopped) return;
      const dueInMs = Number(due![0]?.["wait_ms"] ?? Infinity);
      if (dueInMs < pollMs) pollIn(Math.max(minPollGapMs, dueInMs), maxCount);
      for (const demand of which) {
        demand.waiting = demand.names.reduce((sum, name) => sum + (ready.get(name) ?? 0), 0);
        parts.onCounted(demand);
      }
    } catch {
      // The next poll looks again.
    } finally {
      busy = false;
      if (notified && !stopped) pollIn(minPollGapMs, maxCount);
      notified = false;
    }
  };

  const pollIn = (delayMs: number, maxCount: number): void => {
    cancelLater?.();
    cancelLater = clock.after(delayMs, () => poll(maxCount));
  };

  /** Some are looked at whenever something may have come, others to know how many wait by now. */
  const poll = (maxCount: number): void => {
    // What comes while it is counted may have come too late to be counted.
    if (busy) notified = true;
    if (stopped || busy) return;
    cancelLater?.();
    cancelLater = undefined;
    const sinceMs = clock.monotonic() - countedMs;
    const unknown = demands.filter(
      (demand) => demand.waiting === 0 && (demand.hasLessUrgent || !hasPermits(demand)),
    );
    const known = sinceMs >= pollMs / 2 ? demands.filter((demand) => demand.waiting > 0) : [];
    if (unknown.length > 0 && sinceMs < minPollGapMs) {
      return pollIn(minPollGapMs - sinceMs, maxCount);
    }
    const which = [...unknown, ...known];
    if (which.length > 0) void count(which, Math.max(1, Math.min(maxCount, maxCounted)));
  };

  return {
    look: poll,
    stop(): void {
      stopped = true;
      cancelLater?.();
    },
  };
}
