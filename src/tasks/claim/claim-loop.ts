import { contentionMs } from "../../base/backoff.ts";
import type { Clock } from "../../base/clock.ts";
import { aloneAfterDeaths } from "../../base/death-limit.ts";
import type { Random } from "../../base/random.ts";
import { updateIdle } from "../../pods/sql.ts";
import type { Database } from "../../store/database.ts";
import type { Outbox } from "../finish/outbox.ts";
import type { Claim } from "../rows.ts";
import type { TaskAttempt } from "../run/attempt.ts";
import type { AttemptReports } from "../run/events.ts";
import {
  capacityOf,
  claimLimit,
  type AdaptiveCapacity,
  minByName,
  limitByNameSlots,
  type NameSlots,
} from "./capacity.ts";
import type { ClaimCalls } from "./claim.ts";
import type { ThrottleGate } from "./throttle-gate.ts";

type ClaimLoop = {
  /** There may be something to claim. */
  wake(): void;
  /** There may be room for what is known to wait. */
  tryClaim(): void;
  /** An attempt has ended; a `look` comes once its ending is on its way. */
  attemptEnded(claim: Claim): void;
  /** The task that waited for this pod to be empty has gone elsewhere. */
  dropReserved(): void;
  /** A task that must run alone and waits for this pod to be empty. */
  readonly reserved: string | undefined;
  readonly runsAlone: boolean;
  /** Such a task runs, or is being claimed. */
  readonly hasSuspect: boolean;
  /** Everything that this pod knows is paused. */
  readonly paused: boolean;
  /** Whether the last claim failed. */
  readonly failing: boolean;
  /** How many claim calls are under way. */
  readonly inFlight: number;
  stop(): void;
};

type ClaimLoopParts = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  /** How many names there are handlers for. */
  names: number;
  pollMs: number;
  claimCalls: ClaimCalls;
  slots: NameSlots;
  adaptiveCapacity: AdaptiveCapacity;
  throttleGate: ThrottleGate | undefined;
  outbox: Outbox | undefined;
  report: Pick<AttemptReports, "claimed" | "claimFailed">;
  running: { readonly size: number };
  /** Attempts whose ending isn't stored yet: what runs, and what has just ended. */
  unfinished: ReadonlySet<TaskAttempt>;
  /** Takes on what has come, unless a newer claim of the same task runs here. */
  accept: (claim: Claim, nowMs: number) => TaskAttempt | undefined;
  start: (attempt: TaskAttempt) => void;
  /** Whether a turn that pods were lost under has just begun on this pod. Default: none has. */
  hasSuspectTurn?: (() => boolean) | undefined;
  /** Told after each claim. */
  onAnswered: () => void;
};

/**
 * Decides when to claim and how much, and takes the answers. One claim call is under way at a time, or
 * two while there is a backlog.
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
  let stopped = false;
  /** Claim calls under way, and how many tasks they may bring. */
  let inFlight = 0;
  let requested = 0;
  /** The last claim was full, so another would probably be, too. */
  let backlog = false;
  /** The last claim was full or somebody hinted, so there is probably something to claim. */
  let mayHaveMore = true;
  let reserved: string | undefined;
  let runsAlone = false;
  let claimsAlone = false;
  let paused = false;
  let cancelWake: (() => void) | undefined;

  const wake = () => {
    mayHaveMore = true;
    tryClaim();
  };
  const idleAnnouncer = announceIdle({ ...parts, onIdle: wake });
  const wakeIn = (delayMs: number) => {
    cancelWake?.();
    // A claim that was under way when the pod was stopped mustn't keep its process alive.
    if (!stopped) cancelWake = clock.after(delayMs, wake);
  };

  const freeSlotsBeside = (held: number) =>
    limitByNameSlots(claimLimit(adaptiveCapacity.capacity, held), slots, names);

  const tryClaim = () => {
    if (stopped || names === 0 || outbox?.full) return;
    if (inFlight > 0) return tryClaimBeside();
    let limit = reserved === undefined ? freeSlotsBeside(running.size + requested) : 1;
    idleAnnouncer.set(!mayHaveMore && limit > 0 && !runsAlone);
    if (!mayHaveMore || runsAlone) return;
    const backoffMs = backoff.waitMs();
    if (backoffMs > 0) return wakeIn(backoffMs);
    if (reserved !== undefined && unfinished.size > 0) return;
    // Of two that may end this pod, only one should be to blame. The next poll looks again.
    if (reserved !== undefined && parts.hasSuspectTurn?.()) return;
    if (throttleGate !== undefined && reserved === undefined && limit > 0) {
      throttleGate.poll(limit);
      limit = throttleGate.claimable(limit);
      // Nothing comes of asking until there is a permit, and that is told.
      if (limit === 0) {
        mayHaveMore = false;
        idleAnnouncer.set(true);
      }
    }
    if (limit > 0) void claim(limit);
  };

  // The store would wait for us else, while we read one answer and run what it brought. A claim of a
  // few tasks wouldn't be worth its transaction, so this is for pods that are at least half empty.
  const tryClaimBeside = () => {
    // What is limited by name is counted when it has come, so then one claim waits for the other.
    if (!backlog || inFlight > 1 || slots.any || throttleGate !== undefined) return;
    const half = claimLimit(adaptiveCapacity.capacity, 0);
    if (running.size + requested > capacityOf(adaptiveCapacity.capacity) - half) return;
    if (reserved !== undefined || backoff.waitMs() > 0) return;
    void claim(half);
  };

  const claim = async (limit: number): Promise<void> => {
    inFlight++;
    requested += limit;
    mayHaveMore = false;
    const alone = reserved;
    claimsAlone = alone !== undefined;
    reserved = undefined;
    // Nothing may come beside what must run alone.
    if (alone !== undefined) backlog = false;
    const startedMs = clock.monotonic();
    const permits = throttleGate?.reserve(alone === undefined ? limit : 0);
    try {
      // A pod that is taken for dead can lose a task again as soon as it has claimed it.
      const held = [...unfinished]
        .map((attempt) => attempt.claim.taskId)
        .concat(outbox?.leftOver ?? []);
      const maxByName = slots.free && new Map(slots.free);
      const claimed = await (permits === undefined
        ? claimCalls.claim(limit, alone, held, maxByName)
        : claimCalls.claim(
            limit,
            alone,
            held,
            minByName(maxByName, permits.maxByName),
            permits.sharedLimits,
          ));
      inFlight--;
      claimsAlone = false;
      backoff.succeeded();
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
      if (length === limit || alone !== undefined || reserved !== undefined) mayHaveMore = true;
      else if (length === 0) backoff.foundNothing();
      // The next claim goes out before these run, so that the store works while they do.
      const nowMs = clock.monotonic();
      const started: TaskAttempt[] = [];
      for (const each of claimed.claims) {
        const attempt = parts.accept(each, nowMs);
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
      for (const attempt of started) parts.start(attempt);
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
    attemptEnded({ name, deaths }) {
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
      return inFlight;
    },
    stop() {
      stopped = true;
      idleAnnouncer.stop();
      cancelWake?.();
    },
  };
}

type ClaimBackoff = {
  /** How long the next claim has to wait yet. */
  waitMs(): number;
  /** Whether the last claim failed. */
  readonly failing: boolean;
  succeeded(): void;
  /** Gives how long the next claim has to wait for it. */
  failed(): number;
  foundNothing(): void;
};

// Hints come with every commit of anybody; claims that find nothing are kept to this many a second.
const emptyClaimsPerSecond = 50;

/** How soon a pod may claim again: after failures it waits longer each time, in vain it only claims so often. */
export function claimBackoff({ clock, random }: { clock: Clock; random: Random }): ClaimBackoff {
  let notBeforeMs = 0;
  let failures = 0;
  let tokens = emptyClaimsPerSecond;
  let tokensAtMs = clock.monotonic();
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
      const nowMs = clock.monotonic();
      const earned = ((nowMs - tokensAtMs) / 1_000) * emptyClaimsPerSecond;
      tokens = Math.min(emptyClaimsPerSecond, tokens + earned) - 1;
      tokensAtMs = nowMs;
      if (tokens < 0) notBeforeMs = nowMs + 1_000 / emptyClaimsPerSecond;
    },
  };
}

export type IdleAnnouncer = {
  /** Whether this pod would claim more if there were more. */
  set(idle: boolean): void;
  stop(): void;
};

// A pod that is busy for a moment only would otherwise write with every task.
const busyForMs = 1_000;
// Who has looked before we said that we wait may commit a little later.
const pollAgainMs = 100;

/**
 * Says in the store whether this pod waits for work, where hints cost those who send them: nobody
 * calls out to pods that are all busy. What was committed before this was known to everybody nobody
 * will be told of, so `onWaiting` is called for another look, twice.
 */
export function announceIdle(parts: {
  podId: string;
  database: Database;
  clock: Clock;
  onIdle: () => void;
}): IdleAnnouncer {
  const { podId, database, clock, onIdle: onWaiting } = parts;
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
  const write = async (waiting: boolean): Promise<void> => {
    writing = true;
    try {
      await database.write([updateIdle(podId, waiting)]);
      stored = waiting;
    } catch {
      // Whether it was stored isn't known, and polling does meanwhile.
    }
    writing = false;
    if (stopped) return;
    if (wanted !== stored) return writeLater(busyForMs, () => void write(wanted));
    if (!waiting) return;
    // On a timer of its own: the first look makes the pod busy, which sets the other.
    cancelPoll?.();
    cancelPoll = clock.after(pollAgainMs, onWaiting);
    onWaiting();
  };

  return {
    set(waiting) {
      if (waiting === wanted || !database.notifiesOnlyIdle) return;
      wanted = waiting;
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
