import type { Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { Limiter } from "../../throttles/limiter/limiter.ts";
import type { AcquireOptions } from "../../throttles/limiter/wait-queue.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import type { TaskAttempt } from "../run/attempt.ts";
import type { SharedNameLimit } from "../sql/claim.ts";
import type { TaskHandler } from "../task.ts";
import {
  createLimiters,
  createDemandPoll,
  type ThrottleDemand,
  demandsOf,
} from "./throttle-demand.ts";
import { estimateOf, throttleKeyOf, priorityOf } from "./throttle.ts";

/** What one claim may bring of throttled names, and the permits that are kept for it. */
type ReservedPermits = {
  /** How many of each throttled name may come. */
  readonly maxByName: ReadonlyMap<string, number>;
  readonly sharedLimits: readonly SharedNameLimit[];
  /** Gives a task that came its permit, or says why it can't run now. */
  assign(attempt: TaskAttempt): void;
  /** Gives back what is left. True where there are probably more tasks, and permits for them. */
  settle(how: "answered" | "failed"): boolean;
};

// As among calls that wait: a steady stream of urgent tasks slows the others down and never stops them.
const othersEvery = 16;

/** Why tasks of some names aren't claimed. */
export type BlockedDemand = {
  readonly names: readonly string[];
  readonly throttle: string;
  readonly key: string;
  readonly limit: number;
  /** About how long it will be so, where time alone decides it: how much waits is more than a pod knows. */
  readonly aboutMs?: number;
};

export type ThrottleGate = {
  /** How many of so many tasks there may be permits for; all of them where some name needs none. */
  claimable(limit: number): number;
  /** Keeps permits for a claim of so many tasks. */
  reserve(limit: number): ReservedPermits;
  /** Somebody may wait at a gate that is shut: looks whether it is so. */
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
  /** Told when something that waits at a gate may be claimed. */
  onPermits: () => void;
};

/**
 * The gate before the claim: tasks of throttled names are claimed only as far as there are permits, and
 * come with theirs. What waits behind it counts as demand. Undefined where no handler has a throttle.
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
  /** How many urgent tasks have passed since one that isn't had its turn, and how many such turns there were. */
  let urgentPassed = 0;
  let fairTurns = 0;

  const limiterOf = ({ throttle }: ThrottleDemand): Limiter =>
    limiters.of(throttle, throttle.key as string);

  for (const demand of fixed) limiters.keep(limiterOf(demand));

  /** Says how many wait for permits, of all lines that wait for the same. */
  const reportDemand = (limiter: Limiter): void => {
    // A claim may end after that, and nobody here will claim what waits.
    if (stopped) return;
    const own = fixed.filter((demand) => limiterOf(demand) === limiter);
    const waiting = own.reduce((sum, demand) => sum + demand.waiting, 0);
    limiter.setBlockedTasks(waiting + deferred.count(limiter));
  };

  // Whoever is before others takes only what is known to wait, or they would never have a turn.
  const wantedBy = (demand: ThrottleDemand, limit: number) =>
    demand.hasLessUrgent ? Math.min(demand.waiting, limit) : limit;

  /** Who goes first this once, though others are more urgent. */
  const nextInTurn = (limit: number): ThrottleDemand | undefined => {
    if (limit === 0 || urgentPassed < othersEvery - 1) return undefined;
    const others = fixed.filter((demand) => demand.hasMoreUrgent && demand.waiting > 0);
    return others[fairTurns % others.length];
  };

  const permitsFor = (demand: ThrottleDemand, limit: number): number => {
    if (typeof demand.throttle.key === "string") {
      return limiterOf(demand).roomFor(wantedBy(demand, limit), demand.acquireOptions);
    }
    let open = deferred.mayTry(demand) ? 1 : 0;
    for (const limiter of limiters.allOf(demand.throttle)) {
      if (open >= limit) break;
      open += limiter.roomFor(limit - open, demand.acquireOptions);
    }
    return open;
  };

  const demandPoll = createDemandPoll({
    ...parts,
    demands: fixed,
    hasPermits: (demand) => limiterOf(demand).roomFor(1, demand.acquireOptions) > 0,
    onCounted(demand) {
      const limiter = limiterOf(demand);
      reportDemand(limiter);
      if (demand.waiting > 0 && limiter.roomFor(1, demand.acquireOptions) > 0) onPermits();
    },
  });

  /** A hold ends, a bucket fills, and a task that was put off is due, without anybody saying so. */
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
      const asked = { priority, estimate: estimateOf(own, claim.name, claim.payload) };
      const permit = isReserved ? limiter.useReserved(asked) : limiter.tryAcquire(asked);
      if (permit) {
        // Until its handler makes a call, nobody but the handler is to blame for how long it takes.
        permit.late = "ignored";
        attempt.throttled = { limiter, permit, priority, handedOver: false };
        deferred.resolved(demand);
        return;
      }
      const delayMs = deferred.defer(limiter, demand, asked);
      attempt.throttled = { refused: { type: "interrupted", delayMs } };
      reportDemand(limiter);
    } catch (thrown) {
      if (isReserved) limiterOf(demand).returnReserved(1);
      // So many keys are in use that there is no room for this one yet, which is no fault of the task.
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
      const most = new Map<string, number>();
      const together: SharedNameLimit[] = [];
      const reserved = new Map<ThrottleDemand, number>();
      const came = new Map<ThrottleDemand, number>();
      const first = nextInTurn(limit);
      const early = first ? limiterOf(first).setAside(1, first.acquireOptions) : 0;
      if (early > 0) {
        urgentPassed = 0;
        fairTurns++;
      }
      for (const demand of demands) {
        const isFixed = typeof demand.throttle.key === "string";
        const given = demand === first ? early : 0;
        const open = isFixed
          ? given +
            limiterOf(demand).setAside(wantedBy(demand, limit) - given, demand.acquireOptions)
          : permitsFor(demand, limit);
        if (isFixed) reserved.set(demand, open);
        for (const name of demand.names) most.set(name, open);
        if (demand.names.length > 1) together.push({ names: demand.names, max: open });
      }
      const asked = new Map(reserved);
      return {
        maxByName: most,
        sharedLimits: together,
        assign(attempt) {
          const demand = demandOf.get(attempt.claim.name);
          // What waits for others in vain makes no call.
          if (demand === undefined || attempt.claim.doomed) return;
          came.set(demand, (came.get(demand) ?? 0) + 1);
          const left = reserved.get(demand) ?? 0;
          if (left > 0) reserved.set(demand, left - 1);
          assign(attempt, demand, left > 0);
        },
        settle(how) {
          let again = false;
          for (const demand of byInput) {
            const isFull = came.has(demand) && came.get(demand)! >= most.get(demand.names[0]!)!;
            again ||= how === "answered" && isFull && permitsFor(demand, 1) > 0;
          }
          for (const demand of fixed) {
            const count = asked.get(demand)!;
            const got = came.get(demand) ?? 0;
            const limiter = limiterOf(demand);
            if (demand.hasLessUrgent) urgentPassed += got;
            if (how === "answered" && count > 0) {
              const isFull = got >= count;
              demand.waiting = isFull ? Math.max(1, demand.waiting - got) : 0;
              reportDemand(limiter);
              again ||= isFull && limiter.roomFor(1, demand.acquireOptions) > 0;
            }
            const left = reserved.get(demand)!;
            reserved.set(demand, 0);
            limiter.returnReserved(left);
          }
          return again;
        },
      };
    },

    poll(most) {
      for (const limiter of deferred.limiters()) reportDemand(limiter);
      scheduleWake();
      demandPoll.look(most);
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

// A share comes within a second, and nobody knows how long calls take before the first has ended.
const defaultDelayMs = 500;
// Then each waits a little longer than the one before: they would come back all at once else, ahead of
// others whose permits are free.
const delayStepMs = 20;
const minDelayMs = 50;
// What the fleet learns meanwhile may be that there is room, and a task that is put off doesn't hear of it.
const maxDelayMs = 10_000;
// One that is due again isn't claimed in the same moment.
const recheckMs = 1_000;

/**
 * Tasks that were claimed and given back because there was no permit for them, as happens where only
 * their input says which permit they need. They still wait for it, so they are counted.
 */
export function createDeferred(clock: Clock) {
  const untilMs = new Map<Limiter, number[]>();
  const tryFromMs = new Map<ThrottleDemand, number>();
  return {
    /** How long such a task should be put off. */
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

    /** The same where there is no limiter for its key. */
    deferUnknownKey(demand: ThrottleDemand): number {
      tryFromMs.set(demand, clock.monotonic() + recheckMs);
      return recheckMs;
    },

    /** How many of those wait for permits of this limiter. */
    count(limiter: Limiter): number {
      const known = untilMs.get(limiter);
      if (known === undefined) return 0;
      const nowMs = clock.monotonic();
      const left = known.filter((each) => each > nowMs);
      if (left.length > 0) untilMs.set(limiter, left);
      else untilMs.delete(limiter);
      return left.length;
    },

    /** Whether one may be claimed to see whose permit it needs. */
    mayTry: (demand: ThrottleDemand): boolean => clock.monotonic() >= (tryFromMs.get(demand) ?? 0),

    /** How long it is until one may; undefined where it may now. */
    tryInMs(demand: ThrottleDemand): number | undefined {
      const inMs = (tryFromMs.get(demand) ?? 0) - clock.monotonic();
      return inMs > 0 ? inMs : undefined;
    },

    /** One has found its permit, so another may, too. */
    resolved: (demand: ThrottleDemand): void => void tryFromMs.delete(demand),

    /** Those of which some may wait. */
    limiters: (): Limiter[] => [...untilMs.keys()],
  };
}
