import { contentionMs } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { aloneAfterDeaths } from "../../base/death-limit.ts";
import type { Logger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { createTokenBucket } from "../../base/token-bucket.ts";
import { updateIdle } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { Outbox } from "../finish/outbox.ts";
import type { Claim } from "../rows.ts";
import type { AttemptReports } from "../run/events.ts";
import {
  capacityOf,
  claimLimit,
  freeSlots,
  type AdaptiveCapacity,
  minByName,
  limitByNameSlots,
  type NameSlots,
} from "./capacity.ts";
import { type AheadLimits, createClaimAhead } from "./claim-ahead.ts";
import type { ClaimBatch, ClaimCalls, ClaimRequest, ClaimWithin } from "./claim.ts";
import type { ThrottleGate } from "./throttle-gate.ts";
import type { TaskAttempt } from "../model.ts";

type ClaimLoop = {
  /** Tasks may be ready to claim. */
  wake(): void;
  /** Slots may be free for tasks that are known to be ready. */
  tryClaim(): void;
  /**
   * A claim for a write that makes tasks ready, so that they are claimed by the same commit;
   * undefined if the pod claims none now.
   */
  claimWithin(): Omit<ClaimWithin, "claimed"> | undefined;
  /** An attempt has ended. The worker calls `tryClaim` once the outcome is being stored. */
  attemptEnded(attempt: Pick<TaskAttempt, "claim" | "begun">): void;
  /** The task that waited for this pod to drain has gone elsewhere. */
  dropReserved(): void;
  /** A task that must run alone and waits for this pod to drain. */
  readonly reserved: string | undefined;
  readonly runsAlone: boolean;
  /** A task that must run alone is running or being claimed. */
  readonly hasSuspect: boolean;
  /** All names that this pod handles are paused. */
  readonly paused: boolean;
  /** True if the last claim failed. */
  readonly failing: boolean;
  /** How many claim calls are in flight, or would bring attempts to begin. */
  readonly inFlight: number;
  /** Claims nothing and gives back what was claimed ahead, or claims again. */
  drain(drains: boolean): void;
  stop(): void;
};

type ClaimLoopParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  /** How many names have handlers. */
  names: number;
  /** The names that may be claimed ahead of free slots, and how far. */
  aheadNames: readonly string[];
  aheadLimits?: AheadLimits | undefined;
  pollMs: number;
  claimCalls: ClaimCalls;
  slots: NameSlots;
  adaptiveCapacity: AdaptiveCapacity;
  throttleGate: ThrottleGate | undefined;
  outbox: Outbox | undefined;
  report: Pick<AttemptReports, "claimed" | "claimFailed">;
  running: { readonly size: number };
  /** Attempts whose outcome is not stored yet: running ones, and ones that have just ended. */
  unfinished: ReadonlySet<TaskAttempt>;
  /** Accepts a claim whose answer came then, unless a newer claim of the same task runs here. */
  accept: (claim: Claim, nowMs: number, answeredMs: number) => TaskAttempt | undefined;
  start: (attempt: TaskAttempt) => void;
  /** Gives the task of an attempt back that has not begun. */
  release: (attempt: TaskAttempt) => void;
  log: Logger;
  /** Whether a session turn that pods died under has just begun on this pod. Default: never. */
  hasSuspectTurn?: (() => boolean) | undefined;
  /** Called after each claim. */
  onAnswered: () => void;
};

// A notification comes with every commit of any process; claims that find nothing are limited to
// this rate.
const emptyClaimsPerSecond = 50;
const emptyClaimRate = { perSecond: emptyClaimsPerSecond, burst: emptyClaimsPerSecond };
const claimMsWeight = 0.2;
// How often a pod with tasks claimed ahead makes a claim of all names, by priority.
const fullClaimEveryMs = 50;
// Otherwise a pod that is busy only for a moment would write with every task.
const busyForMs = 1_000;
// A transaction that read the idle pods before this write may commit a little later.
const pollAgainMs = 100;

/**
 * Decides when to claim and how much, and starts what the claims bring. One claim call is in flight
 * at a time, or two while there is a backlog.
 */
export function createClaimLoop(parts: ClaimLoopParts): ClaimLoop {
  const {
    clock,
    names,
    pollMs,
    claimCalls,
    slots,
    adaptiveCapacity,
    throttleGate,
    outbox,
    report,
  } = parts;
  const { running, unfinished } = parts;
  const backoff = claimBackoff(parts);
  const aheadNames = new Set(parts.aheadNames);
  let stopped = false;
  let draining = false;
  /** Claim calls in flight, and how many tasks they may bring. */
  let inFlight = 0;
  let requested = 0;
  /** The last claim was full, so the next one probably is too. */
  let backlog = false;
  /** The last claim was full or a notification came, so tasks are probably ready. */
  let mayHaveMore = true;
  let reserved: string | undefined;
  let runsAlone = false;
  let claimsAlone = false;
  let paused = false;
  let cancelWake: (() => void) | undefined;
  let claimsAhead = false;
  /** How long claims take, on average. */
  let claimMs = 0;
  let lastFullClaimMs = -Infinity;

  const wake = () => {
    mayHaveMore = true;
    tryClaim();
  };
  const idleAnnouncer = announceIdle({ ...parts, onIdle: wake });
  const wakeIn = (delayMs: number) => {
    cancelWake?.();
    // A claim that is in flight when the pod stops must not keep the process alive.
    if (!stopped) cancelWake = clock.after(delayMs, wake);
  };

  const ahead = createClaimAhead({
    ...parts,
    limits: parts.aheadLimits,
    pausesNumber: () => claimCalls.pausesNumber,
    onMarked() {
      tryClaim();
      parts.onAnswered();
    },
  });
  /** Slots that are taken, or will be by what is in flight. */
  const taken = () => running.size + requested;
  const fullClaimDue = () => mayHaveMore && clock.monotonic() - lastFullClaimMs >= fullClaimEveryMs;

  /** Returns whether the free slots belong to tasks that were claimed ahead. */
  const beginAhead = (): boolean => {
    if (ahead.size === 0) return false;
    if (reserved !== undefined || runsAlone || adaptiveCapacity.overload) ahead.giveBack();
    else if (!fullClaimDue()) ahead.begin(freeSlots(adaptiveCapacity.capacity, taken()));
    return ahead.size > 0 && !fullClaimDue();
  };

  const aheadLimit = () => {
    if (!backlog || claimsAhead || inFlight > 1 || runsAlone || reserved !== undefined) return 0;
    return aheadNames.size === 0 || backoff.waitMs() > 0 ? 0 : ahead.limit(claimMs);
  };
  const freeSlotsBeside = (held: number) =>
    limitByNameSlots(claimLimit(adaptiveCapacity.capacity, held), slots, names);

  const tryClaim = () => {
    // Also what a claim ahead that was under way has brought since.
    if (draining) return ahead.giveBack();
    if (stopped || names === 0 || outbox?.full) return;
    const belongToAhead = beginAhead();
    const more = aheadLimit();
    if (more > 0) void claimAhead(more);
    if (belongToAhead) return;
    if (inFlight > 0) return tryClaimBeside();
    let limit = reserved === undefined ? freeSlotsBeside(taken()) : 1;
    idleAnnouncer.set(!mayHaveMore && limit > 0 && !runsAlone);
    if (!mayHaveMore || runsAlone) return;
    const backoffMs = backoff.waitMs();
    if (backoffMs > 0) return wakeIn(backoffMs);
    if (reserved !== undefined && unfinished.size > 0) return;
    // If the pod dies, only one suspect should be blamed. So wait for the next poll.
    if (reserved !== undefined && parts.hasSuspectTurn?.()) return;
    if (reserved === undefined) limit = permitted(limit);
    if (limit > 0) void claim(limit);
    // In the other slots.
    beginAhead();
  };

  /** The limit of a claim, given the permits of throttles. */
  const permitted = (limit: number): number => {
    if (throttleGate === undefined || limit === 0) return limit;
    throttleGate.poll(limit);
    const claimable = throttleGate.claimable(limit);
    // Claims bring nothing until there is a permit, and the throttle gate calls `onPermits` then.
    if (claimable === 0) {
      mayHaveMore = false;
      idleAnnouncer.set(true);
    }
    return claimable;
  };

  const claimWithin = () => {
    if (stopped || outbox?.full || inFlight > 0 || runsAlone || reserved !== undefined) return;
    // Claims that found nothing are no reason: this one finds what it is sent with.
    if (draining || ahead.size > 0 || backoff.failing || !claimCalls.canClaimWithin) return;
    const limit = permitted(freeSlotsBeside(taken()));
    if (limit === 0) return;
    let within: ClaimWithin | undefined;
    void claim(limit, (request) => {
      within = claimCalls.claimWithin(request);
      return within.claimed;
    });
    return within;
  };

  // Keep a second claim in flight, so that the store works while this pod starts what the first one
  // brought. A claim of a few tasks is not worth its transaction, so this is for pods that are at
  // least half empty.
  const tryClaimBeside = () => {
    // Tasks limited by name are counted when they arrive, so their claims run one after the other.
    if (!backlog || inFlight > 1 || ahead.size > 0) return;
    if (slots.any || throttleGate !== undefined) return;
    const half = claimLimit(adaptiveCapacity.capacity, 0);
    if (taken() > capacityOf(adaptiveCapacity.capacity) - half) return;
    if (reserved !== undefined || backoff.waitMs() > 0) return;
    void claim(half);
  };

  // A pod that is believed dead can lose a task right after claiming it, so claims exclude tasks that
  // it still holds. A task that only waits may be claimed anew: the newer claim counts.
  const heldIds = () =>
    [...unfinished].map((attempt) => attempt.claim.taskId).concat(outbox?.leftOver ?? []);

  // The driver of a flow alone can release a run that was claimed.
  const begin = (attempt: TaskAttempt) =>
    draining && !attempt.handler.flow ? parts.release(attempt) : parts.start(attempt);
  const took = (startedMs: number) => {
    claimMs += (clock.monotonic() - startedMs - claimMs) * claimMsWeight;
  };

  /** Claims tasks that will wait for a slot. */
  const claimAhead = async (limit: number): Promise<void> => {
    inFlight++;
    claimsAhead = true;
    const startedMs = clock.monotonic();
    try {
      const claimed = await claimCalls.claim({ limit, held: heldIds(), ahead: parts.aheadNames });
      const { length } = claimed.claims;
      backoff.succeeded();
      took(startedMs);
      report.claimed(length, startedMs);
      backlog = length === limit;
      ahead.add(claimed.claims, claimed.call ?? 0);
      // Another pod is idle. Otherwise tasks are left behind the point where the last claim ended.
      if (length === 0 && claimed.nextDueMs !== 0) ahead.rest();
    } catch (error) {
      backlog = false;
      report.claimFailed(error, backoff.failed());
    }
    inFlight--;
    claimsAhead = false;
    // Other names, and tasks with limits or at their times, are left to the next full claim.
    wake();
    parts.onAnswered();
  };

  const claim = async (
    limit: number,
    send: (request: ClaimRequest) => Promise<ClaimBatch> = claimCalls.claim,
  ): Promise<void> => {
    inFlight++;
    requested += limit;
    lastFullClaimMs = clock.monotonic();
    mayHaveMore = false;
    const alone = reserved;
    claimsAlone = alone !== undefined;
    reserved = undefined;
    // No task may be claimed beside one that must run alone.
    if (alone !== undefined) backlog = false;
    const startedMs = clock.monotonic();
    const permits = throttleGate?.reserve(alone === undefined ? limit : 0);
    try {
      const maxByName = slots.free && new Map(slots.free);
      const claimed = await send({
        limit,
        held: heldIds(),
        reserved: alone,
        maxByName: permits ? minByName(maxByName, permits.maxByName) : maxByName,
        sharedLimits: permits?.sharedLimits,
      });
      inFlight--;
      claimsAlone = false;
      backoff.succeeded();
      took(startedMs);
      const { length } = claimed.claims;
      backlog = alone === undefined && length === limit;
      report.claimed(length, startedMs);
      runsAlone = alone !== undefined && length > 0;
      reserved ??= claimed.reserved;
      paused = claimed.paused === true;
      if (claimed.nextDueMs === 0) mayHaveMore = true;
      else if (claimed.nextDueMs !== undefined && claimed.nextDueMs < pollMs) {
        wakeIn(claimed.nextDueMs);
      }
      // Names that are never claimed ahead must not wait for those that are.
      if (length === limit && claimed.claims.some(({ name }) => !aheadNames.has(name))) {
        lastFullClaimMs = -Infinity;
      }
      if (length === limit || alone !== undefined || reserved !== undefined) mayHaveMore = true;
      else if (length === 0) backoff.foundNothing();
      // The next claim goes out before these tasks run, so that the store works meanwhile.
      const nowMs = clock.monotonic();
      const started: TaskAttempt[] = [];
      for (const each of claimed.claims) {
        const attempt = parts.accept(each, nowMs, nowMs);
        if (attempt !== undefined) started.push(attempt);
      }
      requested -= limit;
      if (maxByName && alone === undefined && slots.settleClaim(maxByName, claimed.claims))
        mayHaveMore = true;
      if (permits !== undefined) {
        for (const attempt of started) permits.assign(attempt);
        if (permits.settle("answered")) mayHaveMore = true;
      }
      tryClaim();
      for (const attempt of started) begin(attempt);
    } catch (error) {
      inFlight--;
      claimsAlone = false;
      requested -= limit;
      backlog = false;
      mayHaveMore = true;
      report.claimFailed(error, backoff.failed());
      permits?.settle("failed");
      tryClaim();
    }
    parts.onAnswered();
  };

  return {
    wake,
    tryClaim,
    claimWithin,
    attemptEnded({ claim: { name, deaths }, begun }) {
      if (begun) ahead.attemptEnded();
      if (deaths >= aloneAfterDeaths) runsAlone = false;
      if (slots.release(name)) mayHaveMore = true;
    },
    dropReserved() {
      reserved = undefined;
      wake();
    },
    get reserved() {
      return reserved;
    },
    get runsAlone() {
      return runsAlone;
    },
    get hasSuspect() {
      return runsAlone || claimsAlone;
    },
    get paused() {
      return paused;
    },
    get failing() {
      return backoff.failing;
    },
    get inFlight() {
      return inFlight + ahead.marking;
    },
    drain(drains) {
      draining = drains;
      // Another pod may have it: reservations of a pod that drains don't count.
      if (drains) reserved = undefined;
      idleAnnouncer.set(false);
      wake();
    },
    stop() {
      stopped = true;
      ahead.stop();
      idleAnnouncer.stop();
      cancelWake?.();
    },
  };
}

type ClaimBackoff = {
  /** How long until the next claim is allowed. */
  waitMs(): number;
  /** True if the last claim failed. */
  readonly failing: boolean;
  succeeded(): void;
  /** Returns how long the next claim has to wait. */
  failed(): number;
  foundNothing(): void;
};

/**
 * Limits how soon a pod claims again: after failures with growing delays, and after empty claims by
 * a rate.
 */
export function claimBackoff({ clock, random }: { clock: Clock; random: Random }): ClaimBackoff {
  let notBeforeMs = 0;
  let failures = 0;
  const spend = createTokenBucket(clock, emptyClaimRate);
  return {
    waitMs: () => notBeforeMs - clock.monotonic(),
    get failing() {
      return failures > 0;
    },
    succeeded() {
      failures = 0;
    },
    failed() {
      const waitMs = contentionMs(++failures, random);
      notBeforeMs = clock.monotonic() + waitMs;
      return waitMs;
    },
    foundNothing() {
      if (spend(1) < 0) notBeforeMs = clock.monotonic() + 1_000 / emptyClaimsPerSecond;
    },
  };
}

export type IdleAnnouncer = {
  /** Sets whether this pod would claim more tasks if there were any. */
  set(idle: boolean): void;
  stop(): void;
};

/**
 * Stores whether this pod is idle, on databases where a notification is expensive for its sender:
 * transactions notify only idle pods. Commits made before the announcement was visible send no
 * notification. So `onIdle` is called for another poll, twice.
 */
export function announceIdle(parts: {
  podId: string;
  database: Database;
  clock: Clock;
  onIdle: () => void;
}): IdleAnnouncer {
  const { podId, database, clock, onIdle } = parts;
  let wanted = false;
  let stored = false;
  let writing = false;
  let stopped = false;
  let cancel: (() => void) | undefined;
  let cancelPoll: (() => void) | undefined;

  const writeLater = (delayMs: number, act: () => void) => {
    cancel?.();
    cancel = clock.after(delayMs, () => {
      cancel = undefined;
      act();
    });
  };
  const write = async (idle: boolean): Promise<void> => {
    writing = true;
    try {
      await database.write([updateIdle(podId, idle)]);
      stored = idle;
    } catch {
      // It is unknown whether the write landed. Polling covers that meanwhile.
    }
    writing = false;
    if (stopped) return;
    if (wanted !== stored) return writeLater(busyForMs, () => void write(wanted));
    if (!idle) return;
    // On a timer of its own: the first poll makes the pod busy, which resets the other timer.
    cancelPoll?.();
    cancelPoll = clock.after(pollAgainMs, onIdle);
    onIdle();
  };

  return {
    set(idle) {
      if (idle === wanted || !database.notifiesOnlyIdle) return;
      wanted = idle;
      if (writing || stopped || wanted === stored) return;
      if (wanted) void write(true);
      else writeLater(busyForMs, () => (wanted ? undefined : void write(false)));
    },
    stop() {
      stopped = true;
      cancel?.();
      cancelPoll?.();
    },
  };
}
