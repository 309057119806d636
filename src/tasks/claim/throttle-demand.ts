import type { Clock } from "../../base/clock.ts";
import type { Database } from "../../store/database.ts";
import type { Limiter } from "../../throttles/limiter/limiter.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import { unparkDue } from "../sql/claim.ts";
import { countReady, nextDue } from "../sql/inspect.ts";
import type { AcquireOptions } from "../../throttles/limiter/permit.ts";
import { priorities, type Priority } from "../../throttles/limiter/priority.ts";
import type { TaskHandler, TaskThrottle } from "../model.ts";

/** Names whose tasks need the same permits, with the same priority. */
export type ThrottleDemand = {
  readonly throttle: TaskThrottle;
  readonly names: string[];
  /** The acquire options of its tasks, as far as they are known before the claim. */
  readonly acquireOptions: AcquireOptions;
  /** True if less urgent demands need the same permits. */
  readonly hasLessUrgent: boolean;
  /** True if more urgent demands need the same permits. */
  readonly hasMoreUrgent: boolean;
  /** How many of its tasks are blocked, as last counted. */
  waiting: number;
};

// Notifications arrive as often as tasks do.
const minPollGapMs = 50;
const maxCounted = 200;

/**
 * The demands of a pod's handlers, the most urgent first. Demands whose key depends on the input
 * are listed separately.
 */
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

/** Finds limiters and subscribes to their free permits. */
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
    /** All known limiters of a throttle, for any key. */
    allOf: ({ declared }: TaskThrottle): Limiter[] => throttles.allOf(declared.name),
    stop(): void {
      stopped = true;
      for (const limiter of throttles.all()) limiter.setBlockedTasks(0);
    },
  };
}

/**
 * Counts the tasks behind throttles without permits. No claim asks for them, and without a count
 * this pod is granted no permits to claim them with.
 */
export function createDemandPoll(parts: {
  database: Database;
  clock: Clock;
  pollMs: number;
  demands: readonly ThrottleDemand[];
  hasPermits: (demand: ThrottleDemand) => boolean;
  /** Called for each demand that was counted. */
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
      // Due tasks are normally unparked by claims, and there may be none while everything is
      // blocked.
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
      // The next poll counts again.
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

  /**
   * Counts demands without known tasks whenever tasks may have arrived, and the others once in a
   * while to refresh their number.
   */
  const poll = (maxCount: number): void => {
    // A task that arrives during a count may be missed by it, so count again.
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
    poll,
    stop(): void {
      stopped = true;
      cancelLater?.();
    },
  };
}

function rankOf({ priority = "batch" }: TaskThrottle): number {
  return priorities.indexOf(priority satisfies Priority);
}

function isBefore(one: TaskThrottle, other: TaskThrottle): boolean {
  const same = one.declared.name === other.declared.name && one.key === other.key;
  return same && rankOf(one) < rankOf(other);
}
