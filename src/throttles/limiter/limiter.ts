import type { Clock } from "../../base/clock.ts";
import type { Random } from "../../base/random.ts";
import { type Classify, classifyCall, type CallOutcome, headersOfAnswer } from "../classify.ts";
import type { Allowance } from "../learning/limit-controller.ts";
import type { MeasuredOutcome, Sample } from "../learning/sample.ts";
import { type HeadersLike, readAnyQuotas } from "../rate-headers.ts";
import { createAdmission, type HoldReason } from "./admission.ts";
import { createLimiterErrors } from "./errors.ts";
import { createCallsInFlight, type HeldPermit, type AcquireOptions } from "./permit.ts";
import type { LimiterSettings } from "./settings.ts";
import { createCallbacks, createTimer } from "./signals.ts";
import { createCallStats, createSampleRecorder, type LimiterSnapshot } from "./stats.ts";
import { createWaitQueue, reportPositionAfterMs } from "./wait-queue.ts";
import type { Priority } from "./priority.ts";

/** Why a call can't begin now, and an estimate of how long it has to wait, where there is one. */
type Refusal = {
  readonly by: HoldReason | "limit" | "closed";
  readonly waitMs?: number;
};

type Demand = {
  readonly inFlight: number;
  readonly waiting: number;
  /** Tasks that would be claimed if there were permits. */
  readonly blockedTasks: number;
};

/** The requests per second that the downstream's answers state, and how long one call took. */
export type StatedRate = { readonly perS: number; readonly latencyMs: number };

/** Learns the limit from this pod's own calls. The limiter uses it while no allowance was granted. */
export type Learner = {
  allowance(): Allowance;
  /** Learns from the calls that ended since the last sample. */
  learn(elapsedMs: number, sample: Sample): void;
  /** What it knows, for the snapshot. */
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
  /** A timer that doesn't keep the process alive. Default: the clock's. */
  readonly background?: Clock["after"] | undefined;
};

/** How often the limiter learns and checks deadlines, while there are calls. */
const tickMs = 1_000;

/**
 * The permits of one throttle and key on one pod: the calls in flight, the calls that wait, and how
 * calls ended. The limit comes from the learner, or from the fleet by `allow`.
 */
export function createLimiter(options: LimiterOptions) {
  const { name, key, clock, random, settings, learner, background = clock.after } = options;
  const { mode } = settings;
  const startMs = clock.monotonic();
  const limiterErrors = createLimiterErrors(name, key);
  const waitQueue = createWaitQueue(clock, limiterErrors);
  const { waiting } = waitQueue;
  const admission = createAdmission(settings, random, startMs);
  const sampler = createSampleRecorder(startMs);
  const callStats = createCallStats(startMs);
  const demandCallbacks = createCallbacks<void>();
  const throttledCallbacks = createCallbacks<void>();
  const freePermitCallbacks = createCallbacks<void>();
  const rateCallbacks = createCallbacks<StatedRate>();
  // Deadlines and learning need not keep a process alive; waiting calls do.
  const tickTimer = createTimer(clock, background, tick);
  const wakeTimer = createTimer(clock, clock.after, wake);
  const positionTimer = createTimer(clock, background, reportPositions);
  const calls = createCallsInFlight(settings, {
    nowMs: clock.monotonic,
    watchDeadline: tickTimer.set,
    onHeaders,
    onReleased,
  });
  let grantedAllowance: Allowance | undefined;
  let blockedTasks = 0;
  /** Permits that are reserved for tasks which are being claimed. No call holds them yet. */
  let reserved = 0;
  let lastLearnedMs = startMs;
  let lastUsedMs = startMs;
  let closed = false;
  /** An answer has stated a rate where none was known, and no call has succeeded since. */
  let newRate = false;

  const learnsAlone = () => mode === "local" && grantedAllowance === undefined;
  const admits = (priority: Priority) =>
    admission.admits(priority, calls.size + reserved, calls.inFlightOf);

  /** Applies the present allowance: the learner's, or the granted one. */
  function applyAllowance(nowMs: number): void {
    const begins = admission.allow(learnsAlone() ? learner.allowance() : grantedAllowance, nowMs);
    if (begins) sampler.beginEpoch(admission.epoch(), calls.size);
    if (failsFast()) waitQueue.refuseAll(() => limiterErrors.open(admission.holdMs(nowMs)));
  }

  const failsFast = () => settings.whenOpen === "fail" && admission.breaker() === "open";

  /** Learns from this pod's calls, unless the fleet decides the limit. */
  function learn(nowMs: number): void {
    if (!learnsAlone()) return;
    const elapsedMs = nowMs - lastLearnedMs;
    lastLearnedMs = nowMs;
    learner.learn(elapsedMs, takeSample(nowMs));
    applyAllowance(nowMs);
  }

  function takeSample(nowMs: number): Sample {
    return sampler.takeSample(nowMs, calls.size, admission.quotas.promisedPerS());
  }

  function learnIfDue(nowMs: number): void {
    // Half a tick, because a throttled call may have triggered learning in between.
    if (nowMs - lastLearnedMs >= tickMs / 2) learn(nowMs);
  }

  function beginCall(request: AcquireOptions, estimate: number, nowMs: number): HeldPermit {
    const permit = calls.begin(request, estimate, admission.epoch(), nowMs);
    permit.tried = admission.take(estimate, nowMs);
    sampler.recordStart(calls.size);
    tickTimer.set(Math.min(permit.deadlineMs, nowMs + tickMs));
    return permit;
  }

  /** A permit at once, or none. It doesn't overtake a waiting call that could have the permit. */
  function tryAcquire(request: AcquireOptions = {}): HeldPermit | undefined {
    const nowMs = clock.monotonic();
    lastUsedMs = nowMs;
    if (closed) return undefined;
    if (!tickTimer.isSet()) learnIfDue(nowMs);
    if (!admits(request.priority ?? "batch")) {
      sampler.recordLimited();
      return undefined;
    }
    const estimate = request.estimate ?? settings.estimate;
    if (admission.holdReason(estimate, nowMs)) return undefined;
    if (waiting.size > 0 && waiting.next(admits)) return undefined;
    return beginCall(request, estimate, nowMs);
  }

  /** How many tasks, up to `max`, could get a permit now. Waiting calls come before them. */
  function countFreePermits(max: number, request: AcquireOptions = {}): number {
    if (closed) return 0;
    const nowMs = clock.monotonic();
    if (!tickTimer.isSet()) learnIfDue(nowMs);
    const { priority = "batch", estimate = settings.estimate } = request;
    if (waiting.size > 0 && waiting.next(admits)) return 0;
    if (admission.holdReason(estimate, nowMs)) return 0;
    const affordable = admission.affordableCalls(estimate, max, nowMs);
    let found = 0;
    for (; found < affordable && admits(priority); found++) reserved++;
    if (found < affordable && blockedTasks > 0) sampler.recordLimited();
    reserved -= found;
    return found;
  }

  /**
   * Reserves up to `max` permits for tasks that are about to be claimed, and returns how many. Each is
   * then used by one `useReserved`, or returned by `returnReserved`.
   */
  function reserve(max: number, request?: AcquireOptions): number {
    lastUsedMs = clock.monotonic();
    const count = countFreePermits(max, request);
    reserved += count;
    return count;
  }

  function acquire(request: AcquireOptions = {}): Promise<HeldPermit> {
    if (request.signal?.aborted) return Promise.reject(request.signal.reason);
    if (closed) return Promise.reject(limiterErrors.closed());
    // While other calls wait, this one joins the queue, so that every 16th turn is counted for all.
    const permit = waiting.size === 0 ? tryAcquire(request) : undefined;
    if (permit) return Promise.resolve(permit);
    if (failsFast()) return Promise.reject(limiterErrors.open(admission.holdMs(clock.monotonic())));
    const { priority = "batch", estimate = settings.estimate } = request;
    if (waiting.sizeOf(priority) >= settings.maxWaiting) {
      return Promise.reject(limiterErrors.full(priority, settings.maxWaiting));
    }
    const granted = waitQueue.join({ request, priority, estimate }, grantPermits);
    if (request.onWaiting) positionTimer.set(clock.monotonic() + reportPositionAfterMs);
    grantPermits();
    if (waiting.size > 0) demandCallbacks.call();
    return granted;
  }

  /** Grants the free permits: to waiting calls in their order, then to tasks that could be claimed. */
  function grantPermits(): void {
    if (closed) return;
    if (waiting.size > 0) grantWaiters();
    if (blockedTasks > 0) freePermitCallbacks.call();
  }

  function grantWaiters(): void {
    const nowMs = clock.monotonic();
    for (;;) {
      const entry = waiting.next(admits);
      if (!entry) {
        if (waiting.size > 0) sampler.recordLimited();
        break;
      }
      const { request, estimate, grant } = entry.item;
      if (admission.holdReason(estimate, nowMs)) break;
      waiting.take(entry);
      grant(beginCall(request, estimate, nowMs));
    }
    if (waiting.size > 0) wakeTimer.set(nowMs + wakeInMs(nowMs));
  }

  /** When to try waiting calls again, although no permit was released. */
  function wakeInMs(nowMs: number): number {
    const waitMs = admission.waitMs(waiting.next(admits)?.item.estimate ?? 0, nowMs);
    return waitMs > 0 ? Math.min(waitMs, tickMs) : tickMs;
  }

  function reportPositions(): void {
    const nowMs = clock.monotonic();
    const holdMs = admission.holdMs(nowMs);
    const limit = admission.limit();
    const nextMs = waitQueue.reportPositions(nowMs, (ahead) => {
      const waitMs = callStats.estimateWaitMs(ahead, limit);
      return waitMs === undefined ? undefined : Math.ceil(holdMs + waitMs);
    });
    if (nextMs < Infinity) positionTimer.set(nextMs);
  }

  function onReleased(permit: HeldPermit, outcome: CallOutcome): void {
    const nowMs = clock.monotonic();
    calls.ended(permit, outcome.kind, nowMs);
    const used = outcome.used ?? permit.usedAmount;
    admission.settleEstimate(permit.estimate, used, nowMs);
    // The failure of a call made under this permit was recorded when it happened.
    if (outcome.kind === "success" || permit.nestedFailure !== outcome.kind) {
      recordOutcome(permit, outcome, nowMs - permit.beganMs, used ?? permit.estimate);
    }
    grantPermits();
  }

  /** The answer to a call has arrived. What its headers say of the downstream's limits holds at once. */
  function onHeaders(permit: HeldPermit, headers: HeadersLike, beganMs = permit.beganMs): void {
    const quotas = readAnyQuotas(headers, clock.now());
    if (quotas.length === 0) return;
    const nowMs = clock.monotonic();
    const knownPerS = admission.quotas.promisedPerS();
    const call = { number: permit.number, beganMs, begunSince: calls.begun - permit.number };
    permit.sawNothingLeft = admission.quotas.read(quotas, call, nowMs);
    if (knownPerS === 0 && admission.quotas.promisedPerS() > 0) newRate = true;
    if (waiting.size > 0) grantPermits();
  }

  /** Records how a call ended. A throttled call is reacted to at once. */
  function recordOutcome(
    permit: HeldPermit,
    outcome: CallOutcome,
    latencyMs: number,
    used: number,
  ): void {
    const nowMs = clock.monotonic();
    const { kind, retryAfterMs, limitedBy } = outcome;
    const measured: MeasuredOutcome = {
      kind,
      latencyMs,
      used,
      ...(permit.firstTokenMs !== undefined && { firstTokenMs: permit.firstTokenMs }),
      ...(retryAfterMs !== undefined && { retryAfterMs }),
      ...(limitedBy && { limitedBy }),
    };
    sampler.record(measured, permit.epoch, nowMs);
    const ending = { kind, comesBack: retryAfterMs !== undefined, begun: calls.begun };
    if (admission.quotas.ended(permit, ending, nowMs)) sampler.recordBrokenPromise();
    callStats.record(measured, nowMs);
    if (retryAfterMs !== undefined) admission.holdFor(retryAfterMs, nowMs);
    if (kind === "success") {
      admission.easeBrake(permit.number, nowMs);
      if (newRate) reportRate(latencyMs, nowMs);
    }
    if (kind !== "throttled") return;
    if (permit.epoch === admission.epoch()) {
      if (learnsAlone()) learn(nowMs);
      // A limit per time that is used up is waited for, and says nothing about calls at once.
      else if (mode === "hybrid" && !permit.sawNothingLeft)
        admission.brake(permit.number, calls.begun, nowMs);
    }
    throttledCallbacks.call();
  }

  /** The first success under a stated rate says how many calls at once it amounts to: the limit grows to them. */
  function reportRate(latencyMs: number, nowMs: number): void {
    newRate = false;
    if (learnsAlone()) learn(nowMs);
    rateCallbacks.call({ perS: admission.quotas.promisedPerS(), latencyMs });
  }

  function tick(): void {
    const nowMs = clock.monotonic();
    const nextMs = Math.min(nowMs + tickMs, calls.expire(nowMs));
    learnIfDue(nowMs);
    admission.fit(nowMs);
    grantPermits();
    if (calls.size > 0 || waiting.size > 0 || admission.isBraked()) tickTimer.set(nextMs);
  }

  function wake(): void {
    const nowMs = clock.monotonic();
    learnIfDue(nowMs);
    admission.fit(nowMs);
    grantPermits();
  }

  applyAllowance(startMs);

  return {
    name,
    key,
    settings,
    acquire,
    tryAcquire,
    nowMs: clock.monotonic,

    /**
     * How a call ended that threw this or returned this response, or was aborted. A call that was made
     * under the permit of another one began at `beganMs`.
     */
    outcomeOf(permit: HeldPermit, thing: unknown, beganMs?: number): CallOutcome {
      const headers = headersOfAnswer(thing);
      if (headers) onHeaders(permit, headers, beganMs);
      if (permit.timedOut) return { kind: permit.late };
      if (permit.givenUp) return { kind: permit.gaveUpAs };
      return classifyCall(thing, clock.now(), options.classify);
    },

    /** Why such a call gets no permit now. */
    findRefusal(request: AcquireOptions = {}): Refusal | undefined {
      const nowMs = clock.monotonic();
      if (closed) return { by: "closed" };
      const { priority = "batch", estimate = settings.estimate } = request;
      const by = admission.holdReason(estimate, nowMs);
      if (by === "no_share") return { by };
      if (by) return { by, waitMs: admission.waitMs(estimate, nowMs) };
      const limit = admission.limit();
      if (limit === 0) return { by: "no_share" };
      if (admits(priority) && !waiting.next(admits)) return undefined;
      const waitMs = callStats.estimateWaitMs(waiting.size + blockedTasks, limit);
      return { by: "limit", ...(waitMs !== undefined && { waitMs }) };
    },

    freePermits: countFreePermits,
    setAside: reserve,

    /** Turns a reserved permit into the permit of a task. Undefined where it can't be used any more. */
    useReserved(request: AcquireOptions = {}): HeldPermit | undefined {
      reserved--;
      const nowMs = clock.monotonic();
      const estimate = request.estimate ?? settings.estimate;
      if (closed || calls.size >= admission.limit() || admission.holdReason(estimate, nowMs))
        return undefined;
      return beginCall(request, estimate, nowMs);
    },

    returnReserved(count: number): void {
      reserved -= count;
      if (count > 0) grantPermits();
    },

    /**
     * Lets a call take over the permit that its task was claimed with. Undefined where the permit has
     * timed out, where the pod has lost its share (other pods rely on it that no call begins after
     * that), and during a hold or an open breaker. The bucket doesn't matter: the estimate was taken when
     * the permit began.
     */
    takeOver(permit: HeldPermit, signal?: AbortSignal): HeldPermit | undefined {
      const by = admission.holdReason(0, clock.monotonic());
      if (permit.timedOut || (by && by !== "bucket")) {
        permit.release("ignored");
        return undefined;
      }
      calls.takeOver(permit, admission.epoch(), signal);
      tickTimer.set(permit.deadlineMs);
      return permit;
    },

    /** Records the failure of a call that was made under a permit, when it happens. */
    recordNestedOutcome(permit: HeldPermit, outcome: CallOutcome, latencyMs: number): void {
      const failed = outcome.kind !== "success" && outcome.kind !== "ignored";
      permit.nestedFailure = failed ? outcome.kind : undefined;
      if (failed) recordOutcome(permit, outcome, latencyMs, 0);
    },

    /** Applies this allowance. Undefined: the pod learns alone in mode `local`, and else has no permits. */
    allow(next: Allowance | undefined): void {
      grantedAllowance = next;
      applyAllowance(clock.monotonic());
      grantPermits();
    },

    /** The calls in flight, in the order in which they began. */
    permitsInUse: calls.all,

    takeSample: (): Sample => takeSample(clock.monotonic()),

    demand: (): Demand => ({
      inFlight: calls.size + reserved,
      waiting: waiting.size,
      blockedTasks,
    }),

    /** Sets how many tasks aren't claimed because there is no permit. */
    setBlockedTasks(count: number): void {
      const more = count > blockedTasks;
      blockedTasks = count;
      if (count > 0) lastUsedMs = clock.monotonic();
      if (more) demandCallbacks.call();
    },

    /** Subscribes to demand that can't be met with the present permits. */
    onDemand: demandCallbacks.add,
    /** Subscribes to permits that become free while tasks are blocked. */
    onFreePermits: freePermitCallbacks.add,
    /** Subscribes to throttled calls. */
    onThrottled: throttledCallbacks.add,
    /** Subscribes to rates that the downstream's answers state where none was known. */
    onRate: rateCallbacks.add,

    /** True when this limiter can be dropped: no calls, no waiters, no lease. */
    isIdle(): boolean {
      // The row names this pod until the lease ends or is returned; a new limiter here would use its share.
      const leased = (grantedAllowance?.untilMs ?? -Infinity) > clock.monotonic();
      const used = calls.size + reserved + waiting.size + blockedTasks > 0;
      return !used && !leased && !grantedAllowance?.limit && !closed;
    },

    /** What its calls have come to, and its limit, at a cost that many limiters may have at once. */
    usage: () => ({ ...callStats.totals(), limit: admission.limit() }),

    countTokens: callStats.countTokens,

    longestMs: calls.longestMs,
    callsLastMs: calls.maxDurationMs,

    /** When a permit was last requested, by the clock's monotonic time. */
    lastUsedMs: () => lastUsedMs,

    snapshot(): LimiterSnapshot {
      const nowMs = clock.monotonic();
      const bucket = admission.bucketSnapshot(nowMs);
      return {
        name,
        key,
        mode,
        limit: admission.limit(),
        inFlight: calls.size,
        inFlightOf: { ...calls.inFlightOf },
        waiting: waiting.size,
        blockedTasks,
        epoch: admission.epoch(),
        breaker: admission.breaker(),
        holdMs: admission.holdMs(nowMs),
        braked: admission.isBraked(),
        ...(bucket && { bucket }),
        ...callStats.snapshot(nowMs),
        ...(learnsAlone() && { learned: learner.state() }),
      };
    },

    /** Grants no more permits. Those in flight may still be released. */
    close(): void {
      if (closed) return;
      closed = true;
      tickTimer.stop();
      wakeTimer.stop();
      positionTimer.stop();
      waitQueue.refuseAll(limiterErrors.closed);
    },
  };
}
