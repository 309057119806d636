import type { Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { Limiter } from "../../throttles/limiter/limiter.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import type { SharedNameLimit } from "../sql/claim.ts";
import {
  createLimiters,
  createDemandPoll,
  type ThrottleDemand,
  demandsOf,
} from "./throttle-demand.ts";
import { estimateOf, throttleKeyOf, priorityOf } from "./throttle.ts";
import type { AcquireOptions } from "../../throttles/limiter/permit.ts";
import type { TaskAttempt, TaskHandler } from "../model.ts";

/** Names whose tasks are not claimed, because their throttle has no free permits. */
export type BlockedDemand = {
  readonly names: readonly string[];
  readonly throttle: string;
  readonly key: string;
  readonly limit: number;
  /**
   * About how long this will last, if it depends on time alone. Undefined when it depends on other
   * tasks, because a pod does not know how many are ahead.
   */
  readonly aboutMs?: number;
};

export type ThrottleGate = {
  /** How many of `limit` tasks could get permits; `limit` if some name needs none. */
  claimable(limit: number): number;
  /** Reserves permits for a claim of up to `limit` tasks. */
  reserve(limit: number): ReservedPermits;
  /** Counts the tasks that are blocked by a throttle without permits. */
  poll(maxCount: number): void;
  readonly blocked: readonly BlockedDemand[];
  stop(): void;
};

type ThrottleGateParts = {
  handlers: ReadonlyMap<string, TaskHandler>;
  throttles: ThrottleRegistry;
  database: Database;
  clock: Clock;
  pollMs: number;
  /** Called when blocked tasks may be claimed. */
  onPermits: () => void;
};

/** The permits reserved for one claim, and the limits by name that follow from them. */
type ReservedPermits = {
  /** The most tasks of each throttled name that the claim may bring. */
  readonly maxByName: ReadonlyMap<string, number>;
  readonly sharedLimits: readonly SharedNameLimit[];
  /** Assigns a permit to a claimed task, or records why the task cannot run now. */
  assign(attempt: TaskAttempt): void;
  /** Returns unused permits. True when more tasks and permits for them are probably available. */
  settle(how: "answered" | "failed"): boolean;
};

// Every 16th turn goes to less urgent demand, as in a limiter's wait queue, so that a steady stream
// of urgent tasks slows the others down but never stops them.
const othersEvery = 16;

// A share of the limit arrives within a second, and no call duration is known before the first call
// ends.
const defaultDelayMs = 500;
// Each further task waits a little longer. Otherwise all would return at once, ahead of tasks whose
// permits are free.
const delayStepMs = 20;
const minDelayMs = 50;
// The fleet may learn of free permits meanwhile, and a deferred task is not woken for that.
const maxDelayMs = 10_000;
// A task that is due again is not claimed at that very moment.
const recheckMs = 1_000;

/**
 * Limits claims by throttles: tasks of throttled names are claimed only while there are permits,
 * and each claimed task holds one. Blocked tasks count as demand. Undefined when no handler has a
 * throttle.
 */
export function createThrottleGate(parts: ThrottleGateParts): ThrottleGate | undefined {
  const { handlers, throttles, clock, onPermits } = parts;
  const { fixed, byInput } = demandsOf(handlers.values());
  const demands = [...fixed, ...byInput];
  if (demands.length === 0) return undefined;
  const demandOf = new Map(
    demands.flatMap((demand) => demand.names.map((name) => [name, demand] as const)),
  );
  const limiters = createLimiters(throttles, onPermits);
  const deferred = createDeferred(clock);
  let cancelWake: (() => void) | undefined;
  let stopped = false;
  /**
   * How many urgent tasks have been claimed since the last turn of a less urgent demand, and how
   * many such turns there were.
   */
  let urgentPassed = 0;
  let fairTurns = 0;

  const limiterOf = ({ throttle }: ThrottleDemand): Limiter =>
    limiters.of(throttle, throttle.key as string);

  for (const demand of fixed) limiters.keep(limiterOf(demand));

  /** Sets how many tasks wait for permits of this limiter, over all demands that share it. */
  const reportDemand = (limiter: Limiter): void => {
    // A claim may end after the stop, and this pod will not claim the blocked tasks.
    if (stopped) return;
    const own = fixed.filter((demand) => limiterOf(demand) === limiter);
    const waiting = own.reduce((sum, demand) => sum + demand.waiting, 0);
    limiter.setBlockedTasks(waiting + deferred.count(limiter));
  };

  // A more urgent demand takes only permits for tasks that were counted. Otherwise less urgent
  // demands would never get one.
  const wantedBy = (demand: ThrottleDemand, limit: number) =>
    demand.hasLessUrgent ? Math.min(demand.waiting, limit) : limit;

  /** Returns the less urgent demand whose turn it is, if it is time for one. */
  const nextInTurn = (limit: number): ThrottleDemand | undefined => {
    if (limit === 0 || urgentPassed < othersEvery - 1) return undefined;
    const others = fixed.filter((demand) => demand.hasMoreUrgent && demand.waiting > 0);
    return others[fairTurns % others.length];
  };

  const permitsFor = (demand: ThrottleDemand, limit: number): number => {
    if (typeof demand.throttle.key === "string") {
      return limiterOf(demand).freePermits(wantedBy(demand, limit), demand.acquireOptions);
    }
    let open = deferred.mayTry(demand) ? 1 : 0;
    for (const limiter of limiters.allOf(demand.throttle)) {
      if (open >= limit) break;
      open += limiter.freePermits(limit - open, demand.acquireOptions);
    }
    return open;
  };

  const demandPoll = createDemandPoll({
    ...parts,
    demands: fixed,
    hasPermits: (demand) => limiterOf(demand).freePermits(1, demand.acquireOptions) > 0,
    onCounted(demand) {
      const limiter = limiterOf(demand);
      reportDemand(limiter);
      if (demand.waiting > 0 && limiter.freePermits(1, demand.acquireOptions) > 0) onPermits();
    },
  });

  /**
   * Wakes the loop when a hold ends, a bucket refills or a deferred task is due. None of these
   * calls `onPermits`.
   */
  const scheduleWake = (): void => {
    cancelWake?.();
    cancelWake = undefined;
    let soonestMs = Math.min(
      Infinity,
      ...byInput.map((demand) => deferred.tryInMs(demand) ?? Infinity),
    );
    for (const demand of fixed) {
      const why =
        demand.waiting > 0 ? limiterOf(demand).findRefusal(demand.acquireOptions) : undefined;
      if (why?.by === "hold" || why?.by === "bucket") {
        soonestMs = Math.min(soonestMs, Math.max(1, why.waitMs ?? Infinity));
      }
    }
    if (soonestMs < Infinity) cancelWake = clock.after(soonestMs, onPermits);
  };

  const assign = (attempt: TaskAttempt, demand: ThrottleDemand, isReserved: boolean): void => {
    const { claim, handler } = attempt;
    const { throttle } = demand;
    try {
      const own = handler.throttle!;
      const limiter = limiters.of(throttle, throttleKeyOf(own, claim.name, claim.payload));
      const priority = priorityOf(own, claim);
      const acquireOptions = { priority, estimate: estimateOf(own, claim.name, claim.payload) };
      const permit = isReserved
        ? limiter.useReserved(acquireOptions)
        : limiter.tryAcquire(acquireOptions);
      if (permit) {
        // Until the handler makes a call, its duration says nothing about the throttled service.
        permit.late = "ignored";
        const what = handler.flow ? "run" : "task";
        permit.work = { from: { id: claim.taskId, what }, fields: { name: claim.name } };
        attempt.throttled = { limiter, permit, priority, handedOver: false };
        deferred.resolved(demand);
        return;
      }
      const delayMs = deferred.defer(limiter, demand, acquireOptions);
      attempt.throttled = { refused: { type: "interrupted", delayMs } };
      reportDemand(limiter);
    } catch (thrown) {
      if (isReserved) limiterOf(demand).returnReserved(1);
      // The throttle tracks too many keys to add this one now, which is not the task's fault.
      attempt.throttled = hasCode(thrown, "throttle_full")
        ? { refused: { type: "interrupted", delayMs: deferred.deferUnknownKey(demand) } }
        : { refused: { type: "threw", thrown } };
    }
  };

  return {
    claimable(limit) {
      if (demandOf.size < handlers.size) return limit;
      let open = 0;
      for (const demand of demands) open += permitsFor(demand, limit);
      return Math.min(open, limit);
    },

    reserve(limit) {
      const maxByName = new Map<string, number>();
      const sharedLimits: SharedNameLimit[] = [];
      const reserved = new Map<ThrottleDemand, number>();
      const claimedOf = new Map<ThrottleDemand, number>();
      const first = nextInTurn(limit);
      const early = first ? limiterOf(first).setAside(1, first.acquireOptions) : 0;
      if (early > 0) {
        urgentPassed = 0;
        fairTurns++;
      }
      for (const demand of demands) {
        const isFixed = typeof demand.throttle.key === "string";
        const taken = demand === first ? early : 0;
        const open = isFixed
          ? taken +
            limiterOf(demand).setAside(wantedBy(demand, limit) - taken, demand.acquireOptions)
          : permitsFor(demand, limit);
        if (isFixed) reserved.set(demand, open);
        for (const name of demand.names) maxByName.set(name, open);
        if (demand.names.length > 1) sharedLimits.push({ names: demand.names, max: open });
      }
      const requested = new Map(reserved);
      return {
        maxByName,
        sharedLimits,
        assign(attempt) {
          const demand = demandOf.get(attempt.claim.name);
          // A task whose dependency failed never runs, so it needs no permit.
          if (demand === undefined || attempt.claim.dependencyFailed) return;
          claimedOf.set(demand, (claimedOf.get(demand) ?? 0) + 1);
          const left = reserved.get(demand) ?? 0;
          if (left > 0) reserved.set(demand, left - 1);
          assign(attempt, demand, left > 0);
        },
        settle(how) {
          let again = false;
          for (const demand of byInput) {
            const isFull =
              claimedOf.has(demand) && claimedOf.get(demand)! >= maxByName.get(demand.names[0]!)!;
            again ||= how === "answered" && isFull && permitsFor(demand, 1) > 0;
          }
          for (const demand of fixed) {
            const count = requested.get(demand)!;
            const claimed = claimedOf.get(demand) ?? 0;
            const limiter = limiterOf(demand);
            if (demand.hasLessUrgent) urgentPassed += claimed;
            if (how === "answered" && count > 0) {
              const isFull = claimed >= count;
              demand.waiting = isFull ? Math.max(1, demand.waiting - claimed) : 0;
              reportDemand(limiter);
              again ||= isFull && limiter.freePermits(1, demand.acquireOptions) > 0;
            }
            const left = reserved.get(demand)!;
            reserved.set(demand, 0);
            limiter.returnReserved(left);
          }
          return again;
        },
      };
    },

    poll(maxCount) {
      for (const limiter of deferred.limiters()) reportDemand(limiter);
      scheduleWake();
      demandPoll.poll(maxCount);
    },

    get blocked() {
      return demands.flatMap((demand) => {
        const known = typeof demand.throttle.key === "string" ? [limiterOf(demand)] : [];
        const all = known.length > 0 ? known : limiters.allOf(demand.throttle);
        return all
          .filter((limiter) => limiter.demand().blockedTasks > 0)
          .flatMap((limiter) => {
            const why = limiter.findRefusal(demand.acquireOptions);
            if (!why) return [];
            const { name, key, limit } = limiter.snapshot();
            const byTime = why.by === "limit" ? undefined : why.waitMs;
            const about = byTime === undefined ? {} : { aboutMs: byTime };
            return [{ names: demand.names, throttle: name, key, limit, ...about }];
          });
      });
    },

    stop() {
      stopped = true;
      cancelWake?.();
      demandPoll.stop();
      limiters.stop();
    },
  };
}

/**
 * Tasks that were claimed and released again because no permit was free. This happens when only the
 * input determines the throttle's key. They still wait for a permit, so they count as demand.
 */
export function createDeferred(clock: Clock) {
  const untilMs = new Map<Limiter, number[]>();
  const tryFromMs = new Map<ThrottleDemand, number>();
  return {
    /** Records a deferred task and returns its delay. */
    defer(limiter: Limiter, demand: ThrottleDemand, acquireOptions: AcquireOptions): number {
      const known = untilMs.get(limiter) ?? [];
      const waitMs =
        limiter.findRefusal(acquireOptions)?.waitMs ?? defaultDelayMs + known.length * delayStepMs;
      const delayMs = Math.ceil(Math.min(maxDelayMs, Math.max(minDelayMs, waitMs)));
      const nowMs = clock.monotonic();
      known.push(nowMs + delayMs + recheckMs);
      untilMs.set(limiter, known);
      tryFromMs.set(demand, nowMs + Math.min(delayMs, recheckMs));
      return delayMs;
    },

    /** Like `defer`, for a key without a limiter. */
    deferUnknownKey(demand: ThrottleDemand): number {
      tryFromMs.set(demand, clock.monotonic() + recheckMs);
      return recheckMs;
    },

    /** How many deferred tasks wait for permits of this limiter. */
    count(limiter: Limiter): number {
      const known = untilMs.get(limiter);
      if (known === undefined) return 0;
      const nowMs = clock.monotonic();
      const left = known.filter((each) => each > nowMs);
      if (left.length > 0) untilMs.set(limiter, left);
      else untilMs.delete(limiter);
      return left.length;
    },

    /** True when a task may be claimed to find out which key it needs. */
    mayTry: (demand: ThrottleDemand): boolean => clock.monotonic() >= (tryFromMs.get(demand) ?? 0),

    /** How long until `mayTry` becomes true; undefined if it is true now. */
    tryInMs(demand: ThrottleDemand): number | undefined {
      const inMs = (tryFromMs.get(demand) ?? 0) - clock.monotonic();
      return inMs > 0 ? inMs : undefined;
    },

    /** A task got its permit, so the next may be tried at once. */
    resolved: (demand: ThrottleDemand): void => void tryFromMs.delete(demand),

    /** Limiters that deferred tasks may wait for. */
    limiters: (): Limiter[] => [...untilMs.keys()],
  };
}
