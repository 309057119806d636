import type { Clock } from "../../base/clock.ts";
import { hasCode } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import type { Limiter } from "../../throttles/limiter/limiter.ts";
import type { AcquireOptions } from "../../throttles/limiter/wait-queue.ts";
import type { Throttles } from "../../throttles/registry.ts";
import type { Running } from "../run/attempt.ts";
import type { NamesTogether } from "../sql/claim.ts";
import type { TaskHandler } from "../task.ts";
import { createLimiters, createProbing, type Line, linesOf } from "./throttle-demand.ts";
import { estimateOf, keyOf, priorityOf } from "./throttle.ts";

/** What one claim may bring of throttled names, and the permits that are kept for it. */
type Passes = {
  /** How many of each throttled name may come. */
  readonly most: ReadonlyMap<string, number>;
  readonly together: readonly NamesTogether[];
  /** Gives a task that came its permit, or says why it can't run now. */
  hand(run: Running): void;
  /** Gives back what is left. True where there are probably more tasks, and permits for them. */
  over(how: "answered" | "failed"): boolean;
};

// As among calls that wait: a steady stream of urgent tasks slows the others down and never stops them.
const othersEvery = 16;

/** Why tasks of some names aren't claimed. */
export type ShutLine = {
  readonly names: readonly string[];
  readonly throttle: string;
  readonly key: string;
  readonly limit: number;
  /** About how long it will be so, where time alone decides it: how much waits is more than a pod knows. */
  readonly aboutMs?: number;
};

export type ThrottleGate = {
  /** How many of so many tasks there may be permits for; all of them where some name needs none. */
  room(limit: number): number;
  /** Keeps permits for a claim of so many tasks. */
  ask(limit: number): Passes;
  /** Somebody may wait at a gate that is shut: looks whether it is so. */
  look(most: number): void;
  readonly shut: readonly ShutLine[];
  stop(): void;
};

type ThrottleGateParts = {
  handlers: ReadonlyMap<string, TaskHandler>;
  throttles: Throttles;
  database: Database;
  clock: Clock;
  pollMs: number;
  /** Told when something that waits at a gate may be claimed. */
  onRoom: () => void;
};

/**
 * The gate before the claim: tasks of throttled names are claimed only as far as there are permits, and
 * come with theirs. What waits behind it counts as demand. Undefined where no handler has a throttle.
 */
export function createThrottleGate(parts: ThrottleGateParts): ThrottleGate | undefined {
  const { handlers, throttles, clock, onRoom } = parts;
  const { fixed, byInput } = linesOf(handlers.values());
  const lines = [...fixed, ...byInput];
  if (lines.length === 0) return undefined;
  const lineOf = new Map(lines.flatMap((line) => line.names.map((name) => [name, line] as const)));
  const limiters = createLimiters(throttles, onRoom);
  const returned = createReturned(clock);
  let cancelWake: (() => void) | undefined;
  let stopped = false;
  /** How many urgent tasks have passed since one that isn't had its turn, and how many such turns there were. */
  let passed = 0;
  let turns = 0;

  const limiterOf = ({ throttle }: Line): Limiter => limiters.of(throttle, throttle.key as string);

  for (const line of fixed) limiters.keep(limiterOf(line));

  /** Says how many wait for permits, of all lines that wait for the same. */
  const tell = (limiter: Limiter): void => {
    // A claim may end after that, and nobody here will claim what waits.
    if (stopped) return;
    const own = fixed.filter((line) => limiterOf(line) === limiter);
    const waiting = own.reduce((sum, line) => sum + line.waiting, 0);
    limiter.behindGate(waiting + returned.of(limiter));
  };

  // Whoever is before others takes only what is known to wait, or they would never have a turn.
  const wanted = (line: Line, limit: number) =>
    line.before ? Math.min(line.waiting, limit) : limit;

  /** Who goes first this once, though others are more urgent. */
  const inTurn = (limit: number): Line | undefined => {
    if (limit === 0 || passed < othersEvery - 1) return undefined;
    const others = fixed.filter((line) => line.after && line.waiting > 0);
    return others[turns % others.length];
  };

  const openFor = (line: Line, limit: number): number => {
    if (typeof line.throttle.key === "string") {
      return limiterOf(line).roomFor(wanted(line, limit), line.asked);
    }
    let open = returned.mayTry(line) ? 1 : 0;
    for (const limiter of limiters.allOf(line.throttle)) {
      if (open >= limit) break;
      open += limiter.roomFor(limit - open, line.asked);
    }
    return open;
  };

  const probing = createProbing({
    ...parts,
    lines: fixed,
    isOpen: (line) => limiterOf(line).roomFor(1, line.asked) > 0,
    onCounted(line) {
      const limiter = limiterOf(line);
      tell(limiter);
      if (line.waiting > 0 && limiter.roomFor(1, line.asked) > 0) onRoom();
    },
  });

  /** A hold ends, a bucket fills, and a task that was put off is due, without anybody saying so. */
  const wakeInTime = (): void => {
    cancelWake?.();
    cancelWake = undefined;
    let soonestMs = Math.min(
      Infinity,
      ...byInput.map((line) => returned.tryInMs(line) ?? Infinity),
    );
    for (const line of fixed) {
      const why = line.waiting > 0 ? limiterOf(line).whyNot(line.asked) : undefined;
      if (why?.by === "hold" || why?.by === "bucket") {
        soonestMs = Math.min(soonestMs, Math.max(1, why.waitMs ?? Infinity));
      }
    }
    if (soonestMs < Infinity) cancelWake = clock.after(soonestMs, onRoom);
  };

  const hand = (run: Running, line: Line, isKept: boolean): void => {
    const { claim, handler } = run;
    const { throttle } = line;
    try {
      const own = handler.throttle!;
      const limiter = limiters.of(throttle, keyOf(own, claim.name, claim.payload));
      const priority = priorityOf(own, claim);
      const asked = { priority, estimate: estimateOf(own, claim.name, claim.payload) };
      const permit = isKept ? limiter.fromAside(asked) : limiter.tryAcquire(asked);
      if (permit) {
        // Until its handler makes a call, nobody but the handler is to blame for how long it takes.
        permit.late = "ignored";
        run.throttled = { limiter, permit, priority, entered: false };
        returned.came(line);
        return;
      }
      const delayMs = returned.giveBack(limiter, line, asked);
      run.throttled = { refused: { type: "interrupted", delayMs } };
      tell(limiter);
    } catch (thrown) {
      if (isKept) limiterOf(line).giveAsideBack(1);
      // So many keys are in use that there is no room for this one yet, which is no fault of the task.
      run.throttled = hasCode(thrown, "throttle_full")
        ? { refused: { type: "interrupted", delayMs: returned.putOff(line) } }
        : { refused: { type: "threw", thrown } };
    }
  };

  return {
    room(limit) {
      if (lineOf.size < handlers.size) return limit;
      let open = 0;
      for (const line of lines) open += openFor(line, limit);
      return Math.min(open, limit);
    },

    ask(limit) {
      const most = new Map<string, number>();
      const together: NamesTogether[] = [];
      const kept = new Map<Line, number>();
      const came = new Map<Line, number>();
      const first = inTurn(limit);
      const early = first ? limiterOf(first).setAside(1, first.asked) : 0;
      if (early > 0) {
        passed = 0;
        turns++;
      }
      for (const line of lines) {
        const isFixed = typeof line.throttle.key === "string";
        const given = line === first ? early : 0;
        const open = isFixed
          ? given + limiterOf(line).setAside(wanted(line, limit) - given, line.asked)
          : openFor(line, limit);
        if (isFixed) kept.set(line, open);
        for (const name of line.names) most.set(name, open);
        if (line.names.length > 1) together.push({ names: line.names, most: open });
      }
      const asked = new Map(kept);
      return {
        most,
        together,
        hand(run) {
          const line = lineOf.get(run.claim.name);
          // What waits for others in vain makes no call.
          if (line === undefined || run.claim.doomed) return;
          came.set(line, (came.get(line) ?? 0) + 1);
          const left = kept.get(line) ?? 0;
          if (left > 0) kept.set(line, left - 1);
          hand(run, line, left > 0);
        },
        over(how) {
          let again = false;
          for (const line of byInput) {
            const isFull = came.has(line) && came.get(line)! >= most.get(line.names[0]!)!;
            again ||= how === "answered" && isFull && openFor(line, 1) > 0;
          }
          for (const line of fixed) {
            const count = asked.get(line)!;
            const got = came.get(line) ?? 0;
            const limiter = limiterOf(line);
            if (line.before) passed += got;
            if (how === "answered" && count > 0) {
              const isFull = got >= count;
              line.waiting = isFull ? Math.max(1, line.waiting - got) : 0;
              tell(limiter);
              again ||= isFull && limiter.roomFor(1, line.asked) > 0;
            }
            const left = kept.get(line)!;
            kept.set(line, 0);
            limiter.giveAsideBack(left);
          }
          return again;
        },
      };
    },

    look(most) {
      for (const limiter of returned.limiters()) tell(limiter);
      wakeInTime();
      probing.look(most);
    },

    get shut() {
      return lines.flatMap((line) => {
        const known = typeof line.throttle.key === "string" ? [limiterOf(line)] : [];
        const all = known.length > 0 ? known : limiters.allOf(line.throttle);
        return all
          .filter((limiter) => limiter.demand().behindGate > 0)
          .flatMap((limiter) => {
            const why = limiter.whyNot(line.asked);
            if (!why) return [];
            const { name, key, limit } = limiter.snapshot();
            const byTime = why.by === "limit" ? undefined : why.waitMs;
            const about = byTime === undefined ? {} : { aboutMs: byTime };
            return [{ names: line.names, throttle: name, key, limit, ...about }];
          });
      });
    },

    stop() {
      stopped = true;
      cancelWake?.();
      probing.stop();
      limiters.stop();
    },
  };
}

// A share comes within a second, and nobody knows how long calls take before the first has ended.
const unknownMs = 500;
// Then each waits a little longer than the one before: they would come back all at once else, ahead of
// others whose permits are free.
const apartMs = 20;
const leastMs = 50;
// What the fleet learns meanwhile may be that there is room, and a task that is put off doesn't hear of it.
const mostMs = 10_000;
// One that is due again isn't claimed in the same moment.
const lingersMs = 1_000;

/**
 * Tasks that were claimed and given back because there was no permit for them, as happens where only
 * their input says which permit they need. They still wait for it, so they are counted.
 */
export function createReturned(clock: Clock) {
  const untilMs = new Map<Limiter, number[]>();
  const tryFromMs = new Map<Line, number>();
  return {
    /** How long such a task should be put off. */
    giveBack(limiter: Limiter, line: Line, asked: AcquireOptions): number {
      const known = untilMs.get(limiter) ?? [];
      const waitMs = limiter.whyNot(asked)?.waitMs ?? unknownMs + known.length * apartMs;
      const delayMs = Math.ceil(Math.min(mostMs, Math.max(leastMs, waitMs)));
      const nowMs = clock.monotonic();
      known.push(nowMs + delayMs + lingersMs);
      untilMs.set(limiter, known);
      tryFromMs.set(line, nowMs + Math.min(delayMs, lingersMs));
      return delayMs;
    },

    /** The same where there is no limiter for its key. */
    putOff(line: Line): number {
      tryFromMs.set(line, clock.monotonic() + lingersMs);
      return lingersMs;
    },

    /** How many of those wait for permits of this limiter. */
    of(limiter: Limiter): number {
      const known = untilMs.get(limiter);
      if (known === undefined) return 0;
      const nowMs = clock.monotonic();
      const left = known.filter((each) => each > nowMs);
      if (left.length > 0) untilMs.set(limiter, left);
      else untilMs.delete(limiter);
      return left.length;
    },

    /** Whether one may be claimed to see whose permit it needs. */
    mayTry: (line: Line): boolean => clock.monotonic() >= (tryFromMs.get(line) ?? 0),

    /** How long it is until one may; undefined where it may now. */
    tryInMs(line: Line): number | undefined {
      const inMs = (tryFromMs.get(line) ?? 0) - clock.monotonic();
      return inMs > 0 ? inMs : undefined;
    },

    /** One has found its permit, so another may, too. */
    came: (line: Line): void => void tryFromMs.delete(line),

    /** Those of which some may wait. */
    limiters: (): Limiter[] => [...untilMs.keys()],
  };
}
