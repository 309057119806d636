import type { Clock } from "../../base/clock.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Random } from "../../base/random.ts";
import { classify, type Classify } from "../classify.ts";
import type { Allowance } from "../learning/controller.ts";
import type { Outcome, Sample } from "../learning/sample.ts";
import { createRoom, type HeldBy } from "./admission.ts";
import { createCalls, type Ending, type HeldPermit } from "./permit.ts";
import { type AcquireOptions, createLine, type Priority } from "./wait-queue.ts";
import { createGauge, createTallies, type LimiterSnapshot } from "./stats.ts";
import type { LimiterSettings } from "./settings.ts";

/** Why a call can't begin now, and how long that will probably be so, where that is known. */
type Refusal = {
  readonly by: HeldBy | "limit" | "closed";
  readonly waitMs?: number;
};

type Demand = {
  readonly inFlight: number;
  readonly waiting: number;
  /** Tasks that would be claimed if there were permits. */
  readonly behindGate: number;
};

/** What decides the limit on this pod where no allowance comes from outside. */
export type Learner = {
  allowance(): Allowance;
  /** Takes in what has happened since the last time. */
  learn(elapsedMs: number, sample: Sample): void;
  /** What it knows, for people to look at. */
  state(): unknown;
};

export type Limiter = ReturnType<typeof createLimiter>;

type LimiterOptions = {
  readonly name: string;
  readonly key: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly settings: LimiterSettings;
  readonly learner: Learner;
  readonly classify?: Classify | undefined;
  /** A timer that needn't keep the process alive; the clock's own if there is none. */
  readonly background?: Clock["after"] | undefined;
};

/** How often what has happened is taken in, while something happens. */
const tickMs = 1_000;
/** Waits that are shorter than this aren't worth a word. */
const momentMs = 250;
/** How often the line is gone through for that at most, as each that joins has a moment of its own. */
const placesMs = 50;

/**
 * The permits of one throttle and key on one pod: who has one, who waits for one, and what came of them.
 * How many there are comes from its learner, or from outside by `allow`.
 */
export function createLimiter(options: LimiterOptions) {
  const { name, key, clock, random, settings, learner, background = clock.after } = options;
  const { mode } = settings;
  const startMs = clock.monotonic();
  const errors = createLimiterErrors(name, key);
  const line = createLine(clock, errors);
  const { waiting } = line;
  const room = createRoom(settings, random, startMs);
  const gauge = createGauge(startMs);
  const tallies = createTallies(startMs);
  const wanting = new Set<() => void>();
  const throttling = new Set<() => void>();
  const gates = new Set<() => void>();
  // Deadlines and learning need not keep a process alive; those who wait do.
  const ticks = createTimer(clock, background, tick);
  const wakes = createTimer(clock, clock.after, wake);
  const places = createTimer(clock, background, tellPlaces);
  const calls = createCalls(settings, { nowMs: clock.monotonic, watch: ticks.set, ended });
  let outside: Allowance | undefined;
  let behindGate = 0;
  /** Permits that are kept for tasks which are being claimed: given, but to no call yet. */
  let aside = 0;
  let learnedMs = startMs;
  let usedMs = startMs;
  let closed = false;

  const learnsAlone = () => mode === "local" && outside === undefined;
  const admits = (priority: Priority) =>
    room.admits(priority, calls.size + aside, calls.inFlightOf);

  /** Goes by what is allowed now, from whoever decides that. */
  function apply(nowMs: number): void {
    const begins = room.allow(learnsAlone() ? learner.allowance() : outside, nowMs);
    if (begins) gauge.beginEpoch(room.epoch(), calls.size);
    if (failsNow()) line.refuseAll(() => errors.open(room.holdMs(nowMs)));
  }

  const failsNow = () => settings.whenOpen === "fail" && room.breaker() === "open";

  /** Takes in what has happened, where nobody else does. */
  function learn(nowMs: number): void {
    if (!learnsAlone()) return;
    const elapsedMs = nowMs - learnedMs;
    learnedMs = nowMs;
    learner.learn(elapsedMs, gauge.take(nowMs, calls.size));
    apply(nowMs);
  }

  function learnIfDue(nowMs: number): void {
    // Half, since a throttled call may have been a reason to learn in between.
    if (nowMs - learnedMs >= tickMs / 2) learn(nowMs);
  }

  function begin(asked: AcquireOptions, estimate: number, nowMs: number): HeldPermit {
    const permit = calls.begin(asked, estimate, room.epoch(), nowMs);
    room.tokens?.take(estimate, nowMs);
    gauge.began(calls.size);
    ticks.set(Math.min(permit.deadlineMs, nowMs + tickMs));
    return permit;
  }

  /** A permit at once, or none: nobody is overtaken who could have it. */
  function tryAcquire(asked: AcquireOptions = {}): HeldPermit | undefined {
    const nowMs = clock.monotonic();
    usedMs = nowMs;
    if (closed) return undefined;
    if (!ticks.isSet()) learnIfDue(nowMs);
    if (!admits(asked.priority ?? "batch")) {
      gauge.limit();
      return undefined;
    }
    const estimate = asked.estimate ?? settings.estimate;
    if (room.heldBy(estimate, nowMs)) return undefined;
    if (waiting.size > 0 && waiting.next(admits)) return undefined;
    return begin(asked, estimate, nowMs);
  }

  /** How many tasks, up to so many, could be given a permit now. Those who wait come before them. */
  function roomFor(most: number, asked: AcquireOptions = {}): number {
    if (closed) return 0;
    const nowMs = clock.monotonic();
    if (!ticks.isSet()) learnIfDue(nowMs);
    const { priority = "batch", estimate = settings.estimate } = asked;
    if (waiting.size > 0 && waiting.next(admits)) return 0;
    if (room.heldBy(estimate, nowMs)) return 0;
    const paid = Math.min(most, room.tokens?.countOf(estimate, nowMs) ?? most);
    let found = 0;
    for (; found < paid && admits(priority); found++) aside++;
    if (found < paid && behindGate > 0) gauge.limit();
    aside -= found;
    return found;
  }

  /**
   * Keeps permits for tasks that are about to be claimed, up to so many, and says how many. Each is for
   * one call of `fromAside`, or is given back.
   */
  function setAside(most: number, asked?: AcquireOptions): number {
    usedMs = clock.monotonic();
    const kept = roomFor(most, asked);
    aside += kept;
    return kept;
  }

  function acquire(asked: AcquireOptions = {}): Promise<HeldPermit> {
    if (asked.signal?.aborted) return Promise.reject(asked.signal.reason);
    if (closed) return Promise.reject(errors.closed());
    // With others waiting, it stands in line first, so that turns are counted the same for all.
    const permit = waiting.size === 0 ? tryAcquire(asked) : undefined;
    if (permit) return Promise.resolve(permit);
    if (failsNow()) return Promise.reject(errors.open(room.holdMs(clock.monotonic())));
    const { priority = "batch", estimate = settings.estimate } = asked;
    if (waiting.sizeOf(priority) >= settings.maxWaiting) {
      return Promise.reject(errors.full(priority, settings.maxWaiting));
    }
    const granted = line.join({ asked, priority, estimate }, giveOut);
    if (asked.onWaiting) places.set(clock.monotonic() + momentMs);
    giveOut();
    if (waiting.size > 0) want();
    return granted;
  }

  /** Gives out what can be given: to those who wait, in turn, and then to tasks that could be claimed. */
  function giveOut(): void {
    if (closed) return;
    if (waiting.size > 0) serve();
    if (behindGate > 0) for (const callback of gates) callback();
  }

  function serve(): void {
    const nowMs = clock.monotonic();
    for (;;) {
      const place = waiting.next(admits);
      if (!place) {
        if (waiting.size > 0) gauge.limit();
        break;
      }
      const { asked, estimate, grant } = place.item;
      if (room.heldBy(estimate, nowMs)) break;
      waiting.take(place);
      grant(begin(asked, estimate, nowMs));
    }
    if (waiting.size > 0) wakes.set(nowMs + wakeInMs(nowMs));
  }

  /** When those who wait should be looked at again, though nobody has given a permit back. */
  function wakeInMs(nowMs: number): number {
    const waitMs = room.waitMs(waiting.next(admits)?.item.estimate ?? 0, nowMs);
    return waitMs > 0 ? Math.min(waitMs, tickMs) : tickMs;
  }

  /** One pass over the line, so that it costs the same for each who waits however many do. */
  function tellPlaces(): void {
    const nowMs = clock.monotonic();
    const holdMs = room.holdMs(nowMs);
    const limit = room.limit();
    let nextMs = Infinity;
    let ahead = 0;
    for (const { item } of waiting) {
      const { onWaiting } = item.asked;
      const tellMs = item.sinceMs + momentMs;
      if (onWaiting && nowMs < tellMs) {
        nextMs = Math.min(nextMs, Math.max(tellMs, nowMs + placesMs));
      } else if (onWaiting) {
        const waitMs = tallies.waitMs(ahead, limit);
        onWaiting({ ahead, ...(waitMs !== undefined && { aboutMs: Math.ceil(holdMs + waitMs) }) });
        nextMs = Math.min(nextMs, nowMs + tickMs);
      }
      ahead++;
    }
    if (nextMs < Infinity) places.set(nextMs);
  }

  function want(): void {
    for (const callback of wanting) callback();
  }

  function ended(permit: HeldPermit, ending: Ending): void {
    const nowMs = clock.monotonic();
    calls.ended(permit, ending.kind, nowMs);
    const used = ending.used ?? permit.usedAmount;
    room.tokens?.settle(permit.estimate, used, nowMs);
    // Calls made under this permit have told of their failure when it happened.
    if (ending.kind === "success" || permit.told !== ending.kind) {
      tell(permit, ending, nowMs - permit.beganMs, used ?? permit.estimate);
    }
    giveOut();
  }

  /** Counts how a call ended, and reacts to it where that can't wait. */
  function tell(permit: HeldPermit, ending: Ending, latencyMs: number, used: number): void {
    const nowMs = clock.monotonic();
    const { kind, retryAfterMs, limitedBy } = ending;
    const outcome: Outcome = {
      kind,
      latencyMs,
      used,
      ...(permit.firstTokenMs !== undefined && { firstTokenMs: permit.firstTokenMs }),
      ...(retryAfterMs !== undefined && { retryAfterMs }),
      ...(limitedBy && { limitedBy }),
    };
    gauge.record(outcome, permit.epoch, nowMs);
    tallies.record(outcome, nowMs);
    if (retryAfterMs !== undefined) room.stayAway(retryAfterMs, nowMs);
    if (kind !== "throttled") return;
    if (permit.epoch === room.epoch()) {
      if (learnsAlone()) learn(nowMs);
      else if (mode === "hybrid") room.brake(permit.number, calls.begun, nowMs);
    }
    for (const callback of throttling) callback();
  }

  function tick(): void {
    const nowMs = clock.monotonic();
    const nextMs = Math.min(nowMs + tickMs, calls.expire(nowMs));
    learnIfDue(nowMs);
    room.fit(nowMs);
    giveOut();
    if (calls.size > 0 || waiting.size > 0 || room.isBraked()) ticks.set(nextMs);
  }

  function wake(): void {
    const nowMs = clock.monotonic();
    learnIfDue(nowMs);
    room.fit(nowMs);
    giveOut();
  }

  apply(startMs);

  return {
    name,
    key,
    settings,
    acquire,
    tryAcquire,
    nowMs: clock.monotonic,

    /** How a call ended that threw this or gave this response, whoever may have cut it short. */
    endingOf(permit: HeldPermit, thing: unknown): Ending {
      if (permit.timedOut) return { kind: permit.late };
      if (permit.givenUp) return { kind: permit.gaveUpAs };
      return classify(thing, clock.now(), options.classify);
    },

    /** Why there is no permit just now, for such a call. */
    whyNot(asked: AcquireOptions = {}): Refusal | undefined {
      const nowMs = clock.monotonic();
      if (closed) return { by: "closed" };
      const { priority = "batch", estimate = settings.estimate } = asked;
      const by = room.heldBy(estimate, nowMs);
      if (by === "no_share") return { by };
      if (by) return { by, waitMs: room.waitMs(estimate, nowMs) };
      const limit = room.limit();
      if (limit === 0) return { by: "no_share" };
      if (admits(priority) && !waiting.next(admits)) return undefined;
      const waitMs = tallies.waitMs(waiting.size + behindGate, limit);
      return { by: "limit", ...(waitMs !== undefined && { waitMs }) };
    },

    roomFor,
    setAside,

    /** Makes one that was set aside the permit of a task; none where it can't be used any more. */
    fromAside(asked: AcquireOptions = {}): HeldPermit | undefined {
      aside--;
      const nowMs = clock.monotonic();
      const estimate = asked.estimate ?? settings.estimate;
      if (closed || calls.size >= room.limit() || room.heldBy(estimate, nowMs)) return undefined;
      return begin(asked, estimate, nowMs);
    },

    giveAsideBack(count: number): void {
      aside -= count;
      if (count > 0) giveOut();
    },

    /**
     * Lets a call take over a permit that was given for it some time ago. None where that was too long
     * ago, or where the pod has lost its share since: others count on it that no call begins after that.
     * Nor while nobody may call; what it costs was taken from the bucket when it was given.
     */
    begin(permit: HeldPermit, signal?: AbortSignal): HeldPermit | undefined {
      const by = room.heldBy(0, clock.monotonic());
      if (permit.timedOut || (by && by !== "bucket")) {
        permit.release("ignored");
        return undefined;
      }
      calls.takeOver(permit, room.epoch(), signal);
      ticks.set(permit.deadlineMs);
      return permit;
    },

    /** Counts the failure of a call that was made under a permit, when it happens. */
    tellUnder(permit: HeldPermit, ending: Ending, latencyMs: number): void {
      const failed = ending.kind !== "success" && ending.kind !== "ignored";
      permit.told = failed ? ending.kind : undefined;
      if (failed) tell(permit, ending, latencyMs, 0);
    },

    /** Goes by this from now on; without it by what the pod has learned alone, or by nothing. */
    allow(next: Allowance | undefined): void {
      outside = next;
      apply(clock.monotonic());
      giveOut();
    },

    takeSample: (): Sample => gauge.take(clock.monotonic(), calls.size),

    demand: (): Demand => ({ inFlight: calls.size + aside, waiting: waiting.size, behindGate }),

    /** How many tasks wait to be claimed for want of permits. */
    behindGate(count: number): void {
      const more = count > behindGate;
      behindGate = count;
      if (count > 0) usedMs = clock.monotonic();
      if (more) want();
    },

    /** Called back when there is demand that can't be met. */
    onWant(callback: () => void): () => void {
      wanting.add(callback);
      return () => void wanting.delete(callback);
    },

    /** Called back when there may be permits for tasks that wait to be claimed. */
    onRoom(callback: () => void): () => void {
      gates.add(callback);
      return () => void gates.delete(callback);
    },

    /** Called back when a call was throttled. */
    onThrottled(callback: () => void): () => void {
      throttling.add(callback);
      return () => void throttling.delete(callback);
    },

    /** Whether nothing is lost to others by forgetting it. */
    isIdle(): boolean {
      // Until its lease is over or given back, the row speaks of it, and another here would be taken for it.
      const leased = (outside?.untilMs ?? -Infinity) > clock.monotonic();
      const used = calls.size + aside + waiting.size + behindGate > 0;
      return !used && !leased && !outside?.limit && !closed;
    },

    longestMs: calls.longestMs,
    callsLastMs: calls.lastMs,

    /** When it was last asked for a permit, by the clock's monotonic time. */
    lastUsedMs: () => usedMs,

    snapshot(): LimiterSnapshot {
      const nowMs = clock.monotonic();
      return {
        name,
        key,
        mode,
        limit: room.limit(),
        inFlight: calls.size,
        inFlightOf: { ...calls.inFlightOf },
        waiting: waiting.size,
        behindGate,
        epoch: room.epoch(),
        breaker: room.breaker(),
        holdMs: room.holdMs(nowMs),
        braked: room.isBraked(),
        ...(room.tokens && { bucket: room.tokens.snapshot(nowMs) }),
        ...tallies.snapshot(nowMs),
        ...(learnsAlone() && { learned: learner.state() }),
      };
    },

    /** Gives nothing out any more; permits that are out may still be given back. */
    close(): void {
      if (closed) return;
      closed = true;
      ticks.stop();
      wakes.stop();
      places.stop();
      line.refuseAll(errors.closed);
    },
  };
}

/**
 * One timer that is only ever brought forward, so that a thousand calls with a deadline need no more
 * than one. Whoever is called back sets it again.
 */
function createTimer(clock: Clock, after: Clock["after"], callback: () => void) {
  let armedMs = Infinity;
  let cancel: (() => void) | undefined;
  let stopped = false;
  return {
    isSet: () => armedMs < Infinity,
    set(atMs: number): void {
      if (atMs >= armedMs || stopped) return;
      cancel?.();
      armedMs = atMs;
      cancel = after(Math.max(0, atMs - clock.monotonic()), () => {
        armedMs = Infinity;
        cancel = undefined;
        callback();
      });
    },
    stop(): void {
      stopped = true;
      cancel?.();
    },
  };
}

export type LimiterErrors = ReturnType<typeof createLimiterErrors>;

/** What those get who ask a limiter for a permit and can't have one. */
function createLimiterErrors(name: string, key: string) {
  const label = key === "" ? `the throttle "${name}"` : `the throttle "${name}" (${key})`;
  const details = { throttle: name, key };
  return {
    open: (retryAfterMs: number) =>
      new FlotillaError(
        "throttle_open",
        `${label} lets no calls through for now, since too many have failed`,
        { retryAfterMs, details: { ...details, retryAfterMs } },
      ),

    full: (priority: Priority, maxWaiting: number) =>
      new FlotillaError(
        "throttle_full",
        `${maxWaiting} calls of priority ${priority} wait for ${label} already`,
        { details: { ...details, priority, maxWaiting } },
      ),

    waited: (maxWaitMs: number) =>
      new FlotillaError("timeout", `no permit of ${label} came free within ${maxWaitMs} ms`, {
        details: { ...details, maxWaitMs },
      }),

    closed: () =>
      new FlotillaError("closed", `${label} belongs to a pod that has stopped`, { details }),
  };
}
