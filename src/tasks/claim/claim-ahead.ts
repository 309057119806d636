import type { Clock } from "../../base/clock.ts";
import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import type { Database } from "../../store/database.ts";
import type { TaskAttempt, TaskHandler } from "../model.ts";
import type { Claim } from "../rows.ts";
import { markBegun } from "../sql/claim.ts";
import { type AdaptiveCapacity, capacityOf } from "./capacity.ts";
import { withClaimTimeout } from "./claim.ts";

/** How far a pod claims ahead of its slots. */
export type AheadLimits = {
  /** The most tasks that are held back. */
  readonly tasks: number;
  /** For how long the pod has work in them at least, by the rate at which its tasks end. */
  readonly ms: number;
};

export type ClaimAhead = {
  /** How many tasks wait for a slot. */
  readonly size: number;
  /** How many of them are being marked. */
  readonly marking: number;
  /** How many tasks to claim ahead now, given how long a claim takes. */
  limit(claimMs: number): number;
  /** Holds the tasks of an ahead call back. */
  add(claims: readonly Claim[], call: number): void;
  /** Begins tasks in free slots, as far as the pod's row says that they begin. */
  begin(free: number): void;
  /** Releases all tasks that are held back, so that any pod can claim them. */
  giveBack(): void;
  /** The same, and nothing is claimed ahead for a while. */
  rest(): void;
  /** An attempt has ended. */
  attemptEnded(): void;
  stop(): void;
};

type ClaimAheadParts = {
  podId: string;
  database: Database;
  clock: Clock;
  log: Logger;
  adaptiveCapacity: AdaptiveCapacity;
  limits?: AheadLimits | undefined;
  /** The number of the pauses that the pod knows; undefined if there are newer ones. */
  pausesNumber: () => number | undefined;
  accept: (claim: Claim, nowMs: number, answeredMs: number) => TaskAttempt | undefined;
  start: (attempt: TaskAttempt) => void;
  release: (attempt: TaskAttempt) => void;
  /** Called when a mark was answered: tasks may begin, or have been released. */
  onMarked: () => void;
};

const defaultLimits: AheadLimits = { tasks: 500, ms: 30 };
// With one writer, a write that says how far the pod has begun costs as much as a claim.
const noLimits: AheadLimits = { tasks: 0, ms: 0 };
// On a slow store, tasks are claimed ahead for as long as some claims take.
const claimsCovered = 4;
const maxCoveredMs = 100;
// Tasks are marked for as long as these take, so that a mark is not written for every handful.
const markedMs = 20;
// Shorter samples would take one burst for the rate.
const sampleMs = 20;
// Tasks that were to begin within milliseconds and still wait are left to other pods.
const giveBackAfterMs = 250;
// After a refusal, because another pod is idle or the store is slow.
const restMs = 1_000;

/**
 * The names that a pod claims ahead: tasks that need nothing but a slot. All others begin with
 * their claim, because a permit or a place of a limit must not be held by a task that waits.
 */
export function aheadNames(handlers: ReadonlyMap<string, TaskHandler>): readonly string[] {
  return [...handlers.values()]
    .filter(({ flow, throttle, concurrency, options }) => {
      return !flow && !throttle && !concurrency && options.slots === undefined;
    })
    .map(({ name }) => name);
}

type Waiting = { readonly claim: Claim; readonly call: number; readonly sinceMs: number };

/**
 * Holds tasks back that were claimed ahead of free slots, so that a pod of few slots and short tasks
 * need not make a claim for every handful of them.
 *
 * The pod's row says up to which of them it has begun. It is written before they begin, so a pod that
 * dies under one counts for that one, and not for those that only waited. So that slots need not wait
 * for that write, it is made for tasks that begin in the next moments before slots are free.
 */
export function createClaimAhead(parts: ClaimAheadParts): ClaimAhead {
  const { podId, database, clock, log } = parts;
  const { limits = database.writesAtOnce === true ? defaultLimits : noLimits } = parts;
  /** In the order in which they begin: by call, then by id. */
  const waiting = new Map<string, Waiting>();
  /** They come before the ones that wait, and begin as soon as a slot is free. */
  const marked = new Map<string, Waiting>();
  const rate = measureRate(clock);
  let marking = 0;
  /** The number of the pauses with which tasks were marked last. */
  let markedPauses = 0;
  let restUntilMs = -Infinity;
  let stopped = false;
  let cancelTimer: (() => void) | undefined;

  const releaseAll = (tasks: Iterable<Waiting>) => {
    const nowMs = clock.monotonic();
    for (const { claim, sinceMs } of tasks) {
      const attempt = parts.accept(claim, nowMs, sinceMs);
      if (attempt !== undefined) parts.release(attempt);
    }
  };
  const giveBack = () => {
    cancelTimer?.();
    cancelTimer = undefined;
    const tasks = [...marked.values(), ...waiting.values()];
    marked.clear();
    waiting.clear();
    releaseAll(tasks);
  };
  const rest = () => {
    restUntilMs = clock.monotonic() + restMs;
    giveBack();
  };

  const isFresh = ({ sinceMs }: Waiting) => clock.monotonic() - sinceMs < giveBackAfterMs;
  const watch = () => {
    cancelTimer ??= clock.after(giveBackAfterMs, () => {
      cancelTimer = undefined;
      const oldest = first(marked) ?? first(waiting);
      if (oldest === undefined) return;
      if (isFresh(oldest)) watch();
      else rest();
    });
  };

  /** Returns whether the tasks up to this one may begin. */
  const mark = async ({ call, claim: { taskId } }: Waiting): Promise<boolean> => {
    const pauses = parts.pausesNumber();
    if (pauses === undefined) return false;
    const statement = markBegun(podId, { call, taskId, pauses });
    try {
      const [rows] = await withClaimTimeout(clock, database.write([statement]));
      if (rows!.length === 0) return false;
      markedPauses = pauses;
      return true;
    } catch (error) {
      log.debug({ pod: podId, error: messageOf(error) }, "tasks claimed ahead are released");
      return false;
    }
  };

  const markSome = async (limit: number): Promise<void> => {
    const some = takeFirst(waiting, limit);
    marking = some.length;
    const mayBegin = isFresh(some[0]!) && (await mark(some.at(-1)!));
    marking = 0;
    if (mayBegin && !stopped) {
      for (const each of some) marked.set(each.claim.taskId, each);
      watch();
    } else {
      rest();
      releaseAll(some);
    }
    parts.onMarked();
  };

  return {
    get size() {
      return waiting.size + marking + marked.size;
    },
    get marking() {
      return marking;
    },
    limit(claimMs) {
      const { capacity, overload } = parts.adaptiveCapacity;
      if (stopped || overload || clock.monotonic() < restUntilMs) return 0;
      const forMs = Math.max(limits.ms, Math.min(claimMs * claimsCovered, maxCoveredMs));
      const most = Math.min(limits.tasks, Math.floor(rate.perMs() * forMs));
      // With less than that, the slots are seldom empty.
      if (most < capacityOf(capacity) / 2 || waiting.size > most / 2) return 0;
      return most - waiting.size;
    },
    add(claims, call) {
      const sinceMs = clock.monotonic();
      for (const claim of claims.toSorted(byId)) {
        // A newer claim of the same task takes the place of the older one.
        marked.delete(claim.taskId);
        waiting.delete(claim.taskId);
        waiting.set(claim.taskId, { claim, call, sinceMs });
      }
      if (stopped) giveBack();
      else if (claims.length > 0) watch();
    },
    begin(free) {
      const oldest = first(marked);
      // A process that was stopped for long finds its tasks with other pods.
      if (oldest && (!isFresh(oldest) || parts.pausesNumber() !== markedPauses)) return rest();
      const nowMs = clock.monotonic();
      const attempts = takeFirst(marked, free).flatMap(
        ({ claim, sinceMs }) => parts.accept(claim, nowMs, sinceMs) ?? [],
      );
      const slots = capacityOf(parts.adaptiveCapacity.capacity);
      const most = Math.max(slots, Math.floor(rate.perMs() * markedMs));
      // The next mark goes out before these tasks run, so that the store works meanwhile. They have
      // their slots by then, because a write may wake the pod.
      if (marking === 0 && waiting.size > 0 && marked.size <= most / 2) {
        void markSome(most - marked.size);
      }
      for (const attempt of attempts) parts.start(attempt);
    },
    giveBack,
    rest,
    attemptEnded: rate.count,
    stop() {
      stopped = true;
      giveBack();
    },
  };
}

function first(tasks: ReadonlyMap<string, Waiting>): Waiting | undefined {
  for (const each of tasks.values()) return each;
  return undefined;
}

function takeFirst(tasks: Map<string, Waiting>, limit: number): Waiting[] {
  const taken: Waiting[] = [];
  for (const [taskId, each] of tasks) {
    if (taken.length >= limit) break;
    taken.push(each);
    tasks.delete(taskId);
  }
  return taken;
}

function byId(a: Claim, b: Claim): number {
  return a.taskId < b.taskId ? -1 : 1;
}

/** How many attempts end in a millisecond, by the last full sample. */
function measureRate(clock: Clock) {
  let sinceMs = clock.monotonic();
  let counted = 0;
  let perMs = 0;
  return {
    count() {
      counted++;
    },
    perMs() {
      const elapsedMs = clock.monotonic() - sinceMs;
      if (elapsedMs >= sampleMs) {
        perMs = counted / elapsedMs;
        counted = 0;
        sinceMs += elapsedMs;
      }
      return perMs;
    },
  };
}
