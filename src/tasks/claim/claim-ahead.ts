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
  /** How many tasks are held back. */
  readonly size: number;
  /** How many are about to begin. They have slots already. */
  readonly beginning: number;
  /** How many tasks to claim ahead now, given how long a claim takes. */
  limit(claimMs: number): number;
  /** Holds the tasks of an ahead call back. */
  add(claims: readonly Claim[], call: number): void;
  /**
   * Begins as many tasks as there are free slots, once the pod's row says so. Slots that become free
   * within a moment are filled together, because each time costs a write.
   */
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
  accept: (claim: Claim, nowMs: number) => TaskAttempt | undefined;
  start: (attempt: TaskAttempt) => void;
  release: (attempt: TaskAttempt) => void;
  /** Called when tasks have begun or could not begin. */
  onSettled: () => void;
};

const defaultLimits: AheadLimits = { tasks: 400, ms: 25 };
// With one writer, a write that says how far the pod has begun costs as much as a claim.
const noLimits: AheadLimits = { tasks: 0, ms: 0 };
// On a slow store, tasks are claimed ahead for as long as some claims take.
const claimsCovered = 4;
const maxCoveredMs = 100;
const gatherMs = 1;
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

/**
 * Holds tasks back that were claimed ahead of free slots, so that a pod of few slots and short tasks
 * need not make a claim for every handful of them.
 *
 * The pod's row says up to which of them it has begun. It is written before they begin, so a pod that
 * dies under one counts for that one, and for none that only waited.
 */
export function createClaimAhead(parts: ClaimAheadParts): ClaimAhead {
  const { podId, database, clock, log } = parts;
  const { limits = database.writesAtOnce === true ? defaultLimits : noLimits } = parts;
  /** In the order in which they begin: by call, then by id. */
  const waiting = new Map<string, { claim: Claim; call: number; sinceMs: number }>();
  const rate = measureRate(clock);
  let beginning = 0;
  let restUntilMs = -Infinity;
  let stopped = false;
  let cancelTimer: (() => void) | undefined;
  let cancelGather: (() => void) | undefined;
  /** Since when slots are free that no task begins in. */
  let freeSinceMs = Infinity;

  const releaseAll = (claims: Iterable<Claim>) => {
    const nowMs = clock.monotonic();
    for (const claim of claims) {
      const attempt = parts.accept(claim, nowMs);
      if (attempt !== undefined) parts.release(attempt);
    }
  };
  const giveBack = () => {
    cancelTimer?.();
    cancelTimer = undefined;
    const claims = [...waiting.values()].map(({ claim }) => claim);
    waiting.clear();
    releaseAll(claims);
  };
  const rest = () => {
    restUntilMs = clock.monotonic() + restMs;
    giveBack();
  };

  const watch = () => {
    cancelTimer ??= clock.after(giveBackAfterMs, () => {
      cancelTimer = undefined;
      const [oldest] = waiting.values();
      if (oldest === undefined) return;
      if (clock.monotonic() - oldest.sinceMs >= giveBackAfterMs) rest();
      else watch();
    });
  };

  /** Returns whether the tasks up to this one may begin. */
  const mark = async (call: number, taskId: string): Promise<boolean> => {
    const pauses = parts.pausesNumber();
    if (pauses === undefined) return false;
    const statement = markBegun(podId, { call, taskId, pauses });
    try {
      const [marked] = await withClaimTimeout(clock, database.write([statement]));
      return marked!.length > 0;
    } catch (error) {
      log.debug({ pod: podId, error: messageOf(error) }, "tasks claimed ahead are released");
      return false;
    }
  };

  const beginSome = async (free: number): Promise<void> => {
    const some = [...waiting.values()].slice(0, free);
    for (const { claim } of some) waiting.delete(claim.taskId);
    const last = some.at(-1)!;
    beginning = some.length;
    // A process that was stopped for long finds its tasks with other pods.
    const isFresh = () => clock.monotonic() - some[0]!.sinceMs < giveBackAfterMs;
    const mayBegin = isFresh() && (await mark(last.call, last.claim.taskId)) && isFresh();
    beginning = 0;
    const claims = some.map(({ claim }) => claim);
    if (!mayBegin || stopped) {
      rest();
      releaseAll(claims);
    } else {
      const nowMs = clock.monotonic();
      const attempts = claims.flatMap((claim) => parts.accept(claim, nowMs) ?? []);
      for (const attempt of attempts) parts.start(attempt);
    }
    parts.onSettled();
  };

  return {
    get size() {
      return waiting.size;
    },
    get beginning() {
      return beginning;
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
        waiting.delete(claim.taskId);
        waiting.set(claim.taskId, { claim, call, sinceMs });
      }
      if (stopped) giveBack();
      else if (claims.length > 0) watch();
    },
    begin(free) {
      if (beginning > 0 || waiting.size === 0 || free === 0) return;
      const nowMs = clock.monotonic();
      const all = capacityOf(parts.adaptiveCapacity.capacity);
      if (free < Math.min(waiting.size, all) && nowMs < freeSinceMs + gatherMs) {
        cancelGather ??= clock.after(gatherMs, () => {
          cancelGather = undefined;
          parts.onSettled();
        });
        freeSinceMs = Math.min(freeSinceMs, nowMs);
        return;
      }
      freeSinceMs = Infinity;
      void beginSome(free);
    },
    giveBack,
    rest,
    attemptEnded: rate.count,
    stop() {
      stopped = true;
      cancelGather?.();
      giveBack();
    },
  };
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
