import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { fraction, type Random } from "../base/random.ts";
import type { Allowance } from "./allowance.ts";
import { type Brake, pullBrake } from "./limiter-brake.ts";
import { createGauge } from "./limiter-gauge.ts";
import { fitReserve, mayHave, noneOfAny } from "./limiter-reserve.ts";
import type { LimiterSettings } from "./limiter-settings.ts";
import { createTallies, type LimiterSnapshot } from "./limiter-snapshot.ts";
import { createTokens } from "./limiter-tokens.ts";
import { type Ending, HeldPermit, type PermitHost } from "./permit.ts";
import type { Outcome, Sample } from "./sample.ts";
import { createWaiting, type Place, type Priority } from "./waiting.ts";

export type AcquireOptions = {
  /** Ends the waiting, and tells the call to end. */
  readonly signal?: AbortSignal | undefined;
  readonly priority?: Priority | undefined;
  /** What the call will probably cost in the bucket's unit. */
  readonly estimate?: number | undefined;
  /** How long the call may take, instead of `callTimeoutMs`. */
  readonly timeoutMs?: number | undefined;
  /** How long to wait for a permit at most. */
  readonly maxWaitMs?: number | undefined;
};

/** What a pod may do of one throttle at present, where others have a say in it. */
export type SharedAllowance = Allowance & {
  /** From this moment of the pod's monotonic clock on nothing may begin: it may be others' by then. */
  readonly untilMs?: number;
};

/** Why a call can't begin now, and for how long, where that is known. */
export type Refusal = {
  readonly by: "limit" | "no_share" | "hold" | "breaker" | "bucket" | "closed";
  readonly waitMs?: number;
};

export type Demand = {
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

export type LimiterOptions = {
  readonly name: string;
  readonly key: string;
  readonly clock: Clock;
  readonly random: Random;
  readonly settings: LimiterSettings;
  readonly learner: Learner;
  /** A timer that needn't keep the process alive; the clock's own if there is none. */
  readonly background?: Clock["after"] | undefined;
};

/** How often what has happened is taken in, while something happens. */
const tickMs = 1_000;

type Waiter = {
  readonly options: AcquireOptions;
  readonly estimate: number;
  grant(permit: HeldPermit): void;
  refuse(error: unknown): void;
};

/**
 * The permits of one throttle and key on one pod: who has one, who waits for one, and what came of them.
 * How many there are comes from its learner, or from outside by `allow`.
 */
export function createLimiter(options: LimiterOptions) {
  const { name, key, clock, random, settings, learner, background = clock.after } = options;
  const { mode, graceMs } = settings;
  const inFlight = new Set<HeldPermit>();
  const inFlightOf = noneOfAny();
  const waiting = createWaiting<Waiter>();
  const gauge = createGauge(clock.monotonic());
  const tallies = createTallies(clock.monotonic());
  const tokens = createTokens(settings.controller.bucket, clock.monotonic());
  const wanting = new Set<() => void>();
  const throttling = new Set<() => void>();
  let outside: SharedAllowance | undefined;
  let allowance: SharedAllowance | undefined;
  let limit = 0;
  let reserve = noneOfAny();
  let brake: Brake | undefined;
  let allowedFromMs = 0;
  let retryFromMs = 0;
  let calls = 0;
  let behindGate = 0;
  let learnedMs = clock.monotonic();
  let usedMs = learnedMs;
  let closed = false;
  let tickAtMs = Infinity;
  let cancelTick: (() => void) | undefined;
  let wakeAtMs = Infinity;
  let cancelWake: (() => void) | undefined;

  const host: PermitHost = { nowMs: clock.monotonic, watch, ended };

  // What may be done, from whoever decides.

  function apply(): void {
    const nowMs = clock.monotonic();
    const next = outside ?? (mode === "local" ? learner.allowance() : undefined);
    if (next && next.epoch !== allowance?.epoch) {
      brake = undefined;
      gauge.beginEpoch(next.epoch, inFlight.size);
    }
    allowance = next;
    allowedFromMs = next ? nowMs + next.holdMs : 0;
    tokens?.refill(next?.refillPerS, nowMs);
    fit(nowMs);
    if (next?.breaker === "open" && settings.whenOpen === "fail") {
      for (const place of waiting) {
        waiting.remove(place);
        place.item.refuse(openError(nowMs));
      }
    }
  }

  function fit(nowMs: number): void {
    if (brake && nowMs >= brake.untilMs) brake = undefined;
    const next = Math.min(allowance?.limit ?? 0, brake?.cap ?? Infinity);
    if (next === limit) return;
    limit = next;
    reserve = fitReserve(settings.reserve, limit);
  }

  /** In the mode `local`: takes in what has happened, and goes by what was learned from it. */
  function learn(nowMs: number): void {
    if (mode !== "local" || outside) return;
    const elapsedMs = nowMs - learnedMs;
    learnedMs = nowMs;
    learner.learn(elapsedMs, gauge.take(nowMs, inFlight.size));
    apply();
  }

  // Who gets a permit.

  const admits = (priority: Priority) =>
    mayHave(priority, limit - inFlight.size, reserve, inFlightOf);

  function heldBack(estimate: number, nowMs: number): Refusal["by"] | undefined {
    // A timer would come too late in a process that was stopped for a while.
    if (allowance?.untilMs !== undefined && nowMs >= allowance.untilMs) return "no_share";
    if (allowance?.breaker === "open") return "breaker";
    if (nowMs < allowedFromMs || nowMs < retryFromMs) return "hold";
    if (tokens && tokens.waitMs(estimate, nowMs) > 0) return "bucket";
    return undefined;
  }

  function begin(asked: AcquireOptions, estimate: number): HeldPermit {
    // Others wait for `callTimeoutMs` before they take over what a pod that is gone had granted.
    const timeoutMs = Math.min(asked.timeoutMs ?? Infinity, settings.callTimeoutMs);
    const priority = asked.priority ?? "batch";
    const permit = new HeldPermit(
      host,
      {
        priority,
        estimate,
        epoch: allowance?.epoch ?? 0,
        number: ++calls,
        timeoutMs,
        graceMs,
      },
      asked.signal,
    );
    tokens?.take(estimate, clock.monotonic());
    inFlight.add(permit);
    inFlightOf[priority]++;
    gauge.began(inFlight.size);
    watch(permit.deadlineMs);
    return permit;
  }

  /** A permit at once, or none: nobody is overtaken who could have it. */
  function tryAcquire(asked: AcquireOptions = {}): HeldPermit | undefined {
    const nowMs = clock.monotonic();
    usedMs = nowMs;
    if (closed) return undefined;
    if (tickAtMs === Infinity && nowMs - learnedMs >= tickMs / 2) learn(nowMs);
    const estimate = asked.estimate ?? settings.estimate;
    const priority = asked.priority ?? "batch";
    if (!admits(priority)) {
      gauge.limit();
      return undefined;
    }
    if (heldBack(estimate, nowMs)) return undefined;
    if (waiting.size > 0 && waiting.next(admits)) return undefined;
    return begin(asked, estimate);
  }

  function acquire(asked: AcquireOptions = {}): Promise<HeldPermit> {
    if (asked.signal?.aborted) return Promise.reject(reasonOf(asked.signal));
    if (closed) return Promise.reject(closedError());
    // With others waiting, it takes its place first, so that turns are counted the same for all.
    const permit = waiting.size === 0 ? tryAcquire(asked) : undefined;
    if (permit) return Promise.resolve(permit);
    const nowMs = clock.monotonic();
    if (allowance?.breaker === "open" && settings.whenOpen === "fail") {
      return Promise.reject(openError(nowMs));
    }
    const priority = asked.priority ?? "batch";
    if (waiting.sizeOf(priority) >= settings.maxWaiting) return Promise.reject(fullError(priority));
    return new Promise((resolve, reject) => wait(asked, priority, resolve, reject));
  }

  function wait(
    asked: AcquireOptions,
    priority: Priority,
    resolve: (permit: HeldPermit) => void,
    reject: (error: unknown) => void,
  ): void {
    const { signal, maxWaitMs } = asked;
    let cancelTimer: (() => void) | undefined;
    const leave = () => {
      cancelTimer?.();
      signal?.removeEventListener("abort", onAbort);
    };
    const giveUp = (error: unknown) => {
      if (!waiting.remove(place)) return;
      leave();
      reject(error);
      pump();
    };
    const onAbort = () => giveUp(reasonOf(signal!));
    const place: Place<Waiter> = waiting.add(priority, {
      options: asked,
      estimate: asked.estimate ?? settings.estimate,
      grant(permit) {
        leave();
        resolve(permit);
      },
      refuse(error) {
        leave();
        reject(error);
      },
    });
    signal?.addEventListener("abort", onAbort, { once: true });
    if (maxWaitMs !== undefined) {
      cancelTimer = clock.after(maxWaitMs, () => giveUp(waitedError(maxWaitMs)));
    }
    pump();
    if (place.waits) want();
  }

  /** Gives out what can be given, in turn. */
  function pump(): void {
    if (waiting.size === 0 || closed) return;
    const nowMs = clock.monotonic();
    for (;;) {
      const place = waiting.next(admits);
      if (!place) {
        if (waiting.size > 0) gauge.limit();
        break;
      }
      const { item } = place;
      const by = heldBack(item.estimate, nowMs);
      if (by) break;
      waiting.take(place);
      item.grant(begin(item.options, item.estimate));
    }
    if (waiting.size > 0) armWake(nowMs);
  }

  function want(): void {
    for (const callback of wanting) callback();
  }

  // What came of it.

  function ended(permit: HeldPermit, ending: Ending): void {
    const nowMs = clock.monotonic();
    inFlight.delete(permit);
    inFlightOf[permit.priority]--;
    const used = ending.used ?? permit.usedAmount;
    tokens?.settle(permit.estimate, used, nowMs);
    // Calls made under this permit have told of their failure when it happened.
    if (ending.kind === "success" || permit.told !== ending.kind) {
      tell(permit, ending, nowMs - permit.beganMs, used ?? permit.estimate);
    }
    pump();
  }

  /** Counts how a call ended, and reacts to it where it can't wait. */
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
    if (retryAfterMs !== undefined) {
      // A little later than asked, and not all pods at the same moment.
      const spreadMs = retryAfterMs * (1 + fraction(random) / 10);
      retryFromMs = Math.max(retryFromMs, nowMs + spreadMs);
    }
    if (kind !== "throttled") return;
    if (permit.epoch === allowance?.epoch) {
      if (mode === "local" && !outside) learn(nowMs);
      else if (mode === "hybrid") {
        const share = allowance.limit;
        brake = pullBrake(brake, { share, call: permit.number, calls, nowMs });
        fit(nowMs);
      }
    }
    for (const callback of throttling) callback();
  }

  // Time that passes: one timer for all deadlines and for learning, and one for those who wait.

  function watch(deadlineMs: number): void {
    const nowMs = clock.monotonic();
    const atMs = Math.min(deadlineMs, nowMs + tickMs);
    // A tick that is due within this one needn't be moved.
    if (atMs >= tickAtMs || closed) return;
    cancelTick?.();
    tickAtMs = atMs;
    cancelTick = background(Math.max(0, atMs - nowMs), tick);
  }

  function tick(): void {
    tickAtMs = Infinity;
    cancelTick = undefined;
    const nowMs = clock.monotonic();
    let nextMs = Infinity;
    for (const permit of inFlight) {
      if (permit.deadlineMs <= nowMs) permit.expire();
      if (!permit.released) nextMs = Math.min(nextMs, permit.deadlineMs);
    }
    if (nowMs - learnedMs >= tickMs / 2) learn(nowMs);
    fit(nowMs);
    pump();
    if (inFlight.size > 0 || waiting.size > 0 || brake) watch(nextMs);
  }

  function armWake(nowMs: number): void {
    let atMs = nowMs + tickMs;
    const holdMs = Math.max(allowedFromMs, retryFromMs);
    if (holdMs > nowMs) atMs = Math.min(atMs, holdMs);
    else if (tokens) {
      const place = waiting.next(admits);
      const waitMs = place ? tokens.waitMs(place.item.estimate, nowMs) : 0;
      if (waitMs > 0) atMs = Math.min(atMs, nowMs + waitMs);
    }
    if (atMs >= wakeAtMs) return;
    cancelWake?.();
    wakeAtMs = atMs;
    cancelWake = clock.after(atMs - nowMs, () => {
      wakeAtMs = Infinity;
      const firedMs = clock.monotonic();
      if (firedMs - learnedMs >= tickMs / 2) learn(firedMs);
      fit(firedMs);
      pump();
    });
  }

  function whyNot(asked: AcquireOptions = {}): Refusal | undefined {
    const nowMs = clock.monotonic();
    if (closed) return { by: "closed" };
    const estimate = asked.estimate ?? settings.estimate;
    const by = heldBack(estimate, nowMs);
    if (by === "bucket") return { by, waitMs: tokens!.waitMs(estimate, nowMs) };
    if (by) return { by, waitMs: Math.max(0, allowedFromMs - nowMs, retryFromMs - nowMs) };
    if (limit === 0) return { by: "no_share" };
    if (admits(asked.priority ?? "batch") && !waiting.next(admits)) return undefined;
    const waitMs = tallies.waitMs(waiting.size + behindGate, limit);
    return { by: "limit", ...(waitMs !== undefined && { waitMs }) };
  }

  function openError(nowMs: number): FlotillaError {
    const retryAfterMs = Math.max(0, allowedFromMs - nowMs, retryFromMs - nowMs);
    return new FlotillaError(
      "throttle_open",
      `${label(name, key)} lets no calls through for now, since too many have failed`,
      { retryAfterMs, details: { throttle: name, key, retryAfterMs } },
    );
  }

  function fullError(priority: Priority): FlotillaError {
    return new FlotillaError(
      "throttle_full",
      `${settings.maxWaiting} calls of priority ${priority} wait for ${label(name, key)} already`,
      { details: { throttle: name, key, priority, maxWaiting: settings.maxWaiting } },
    );
  }

  function waitedError(maxWaitMs: number): FlotillaError {
    return new FlotillaError(
      "timeout",
      `no permit of ${label(name, key)} came free within ${maxWaitMs} ms`,
      { details: { throttle: name, key, maxWaitMs } },
    );
  }

  function closedError(): FlotillaError {
    return new FlotillaError("closed", `${label(name, key)} belongs to a pod that has stopped`);
  }

  apply();

  return {
    name,
    key,
    settings,
    acquire,
    tryAcquire,
    whyNot,
    nowMs: clock.monotonic,
    wallMs: clock.now,

    /** Counts the failure of a call that was made under a permit, when it happens. */
    tellUnder(permit: HeldPermit, ending: Ending, latencyMs: number): void {
      const failed = ending.kind !== "success" && ending.kind !== "ignored";
      permit.told = failed ? ending.kind : undefined;
      if (failed) tell(permit, ending, latencyMs, 0);
    },

    /** Lets a call take over a permit that was given for it some time ago. */
    begin(permit: HeldPermit, signal?: AbortSignal): void {
      permit.begin(allowance?.epoch ?? 0, ++calls, signal);
      watch(permit.deadlineMs);
    },

    /** Goes by what others have learned, from now on; by nothing but the learner without it. */
    allow(next: SharedAllowance | undefined): void {
      outside = next;
      apply();
      pump();
    },

    takeSample: (): Sample => gauge.take(clock.monotonic(), inFlight.size),

    demand: (): Demand => ({ inFlight: inFlight.size, waiting: waiting.size, behindGate }),

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

    /** Called back when a call was throttled. */
    onThrottled(callback: () => void): () => void {
      throttling.add(callback);
      return () => void throttling.delete(callback);
    },

    /** Whether nothing is lost by forgetting it. */
    isIdle: () =>
      inFlight.size === 0 && waiting.size === 0 && behindGate === 0 && !outside?.limit && !closed,

    /** When it was last asked for a permit, by the clock's monotonic time. */
    lastUsedMs: () => usedMs,

    snapshot(): LimiterSnapshot {
      const nowMs = clock.monotonic();
      return {
        name,
        key,
        mode,
        limit,
        inFlight: inFlight.size,
        inFlightOf: { ...inFlightOf },
        waiting: waiting.size,
        behindGate,
        epoch: allowance?.epoch ?? 0,
        breaker: allowance?.breaker ?? "closed",
        holdMs: Math.max(0, allowedFromMs - nowMs, retryFromMs - nowMs),
        braked: brake !== undefined,
        ...(tokens && { bucket: tokens.snapshot(nowMs) }),
        ...tallies.snapshot(nowMs),
        ...(mode === "local" && !outside && { learned: learner.state() }),
      };
    },

    /** Gives nothing out any more; permits that are out may still be given back. */
    close(): void {
      if (closed) return;
      closed = true;
      cancelTick?.();
      cancelWake?.();
      for (const place of waiting) {
        waiting.remove(place);
        place.item.refuse(closedError());
      }
    },
  };
}

function reasonOf(signal: AbortSignal): unknown {
  return signal.reason ?? new DOMException("This operation was aborted", "AbortError");
}

function label(name: string, key: string): string {
  return key === "" ? `the throttle "${name}"` : `the throttle "${name}" (${key})`;
}
