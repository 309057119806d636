import {
  type AcquireOptions,
  priorities,
  type Priority,
} from "../../throttles/limiter/wait-queue.ts";
import type { Limiter } from "../../throttles/limiter/limiter.ts";
import type { Throttles } from "../../throttles/registry.ts";
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

export type Limiters = ReturnType<typeof createLimiters>;
