import type { Clock } from "../../base/clock.ts";
import { type Ids, uuidv7 } from "../../base/ids.ts";
import { defaultMaxBytes } from "../../base/json.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { untilIdle } from "../../base/timeout.ts";
import type { Prices } from "../../base/usage.ts";
import type { FileSettings } from "../../files/files.ts";
import { runWithOrigin } from "../../pods/unhandled-errors.ts";
import { createStepReader } from "../../steps/reader.ts";
import type { Database } from "../../store/database.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import {
  type Capacity,
  capacityOf,
  createAdaptiveCapacity,
  createNameSlots,
  type AdaptiveCapacityParts,
} from "../claim/capacity.ts";
import { type AheadLimits, aheadNames } from "../claim/claim-ahead.ts";
import { createClaimLoop } from "../claim/claim-loop.ts";
import { type ClaimWithin, createClaimCalls } from "../claim/claim.ts";
import { createThrottleGate } from "../claim/throttle-gate.ts";
import { releasePermit } from "../claim/throttle.ts";
import { createAttemptFinisher, createFinish } from "../finish/finish.ts";
import { createFinishWriter } from "../finish/finish-writer.ts";
import { withOutbox, type Outbox } from "../finish/outbox.ts";
import type { Claim } from "../rows.ts";
import { longestOf, outcomeOfThrown, startAttempt, stopAttempt } from "./attempt.ts";
import { createAttemptReports } from "./events.ts";
import { createTaskFiles } from "../files/task-files.ts";
import { executeAttempt } from "./execute.ts";
import { startPolling } from "./held-claims.ts";
import type { LocalProgress } from "./local-progress.ts";
import {
  createStatusPublisher,
  flowsOf,
  versionsOf,
  type PodState,
  type Reason,
  reasonsOf,
} from "./pod-status.ts";
import { createTaskProgress } from "./progress.ts";
import type {
  AttemptOutcome,
  TaskHandler,
  DriveResult,
  DriverHost,
  TaskAttempt,
  StopReason,
  WorkerEvent,
  Middleware,
} from "../model.ts";

export type { WorkerEvent };

export type WorkerOptions = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  /** Makes the ids of tasks that follow failures. */
  ids?: Ids;
  handlers: ReadonlyMap<string, TaskHandler>;
  capacity: Capacity;
  /** When and how far pressure lowers the capacity. Without it the capacity is constant. */
  pressure?: AdaptiveCapacityParts["pressure"];
  /** How long a lost notification may delay a claim or a cancel. */
  pollMs?: number;
  /** How long a handler may take to settle after its signal has aborted. */
  graceMs?: number;
  maxResultBytes?: number;
  /** How large files may be, and where they are. */
  fileSettings?: FileSettings;
  /** Wraps every handler, the first outermost. */
  middleware?: readonly Middleware[];
  /** The throttles that handlers use. Without it no handler may have a throttle. */
  throttles?: ThrottleRegistry;
  /** What models cost, for budgets of durable agents. */
  prices?: Prices | undefined;
  /** Keeps outcomes that the store cannot take now. Default: in memory only. */
  outbox?: Outbox;
  /** Keeps the progress of handlers with `progress: "local"`. Default: in the store only. */
  localProgress?: LocalProgress;
  /**
   * Called with the number of an abandoned claim call; the heartbeat stores it as the pod's floor.
   */
  onAbandoned?: (call: number) => void;
  /** How far to claim ahead of free slots. */
  ahead?: AheadLimits;
  onEvent?: (event: WorkerEvent) => void;
  /** Called with the id of a task that ended here, for `waitFor` callers in this process. */
  onEnded?: (taskId: string) => void;
  /** Whether a session turn that pods died under has just begun on this pod. Default: never. */
  hasSuspectTurn?: () => boolean;
  /** Whether nothing else is left to do on a pod that drains. Default: nothing is. */
  restHasDrained?: () => boolean;
  log?: Logger;
};

export type Worker = {
  /** Tasks may be ready to claim. */
  wake(): void;
  /**
   * A claim for a write that stores tasks of these names, so that they are claimed by the same
   * commit; undefined if this pod claims none of them now.
   */
  claimWithin(names: ReadonlySet<string>): Omit<ClaimWithin, "claimed"> | undefined;
  readonly running: number;
  /** The tasks that it has run for longest, with the store's time at which they began. */
  longestRunning(count: number): { readonly taskId: string; readonly startedAtMs: number }[];
  /** True while a task that pods died under runs here alone, or is about to. */
  readonly hasSuspect: boolean;
  /** What the pod is doing, as text for operators. */
  readonly state: WorkerState;
  /** How many tasks it holds at most right now, and all reasons why it claims no more. */
  readonly capacity: PodState;
  /** Claims nothing and gives back what has not begun, or claims again. Attempts that run go on. */
  drain(drains: boolean): void;
  /** Stops claiming, waits for running attempts, then aborts them, then releases what is left. */
  stop(options: { waitMs: number }): Promise<void>;
};

/** What a pod is doing, in a word or two. */
type WorkerState =
  | "alone"
  | "claiming"
  | "drained"
  | "draining"
  | "draining for one"
  | "full"
  | "idle"
  | "paused"
  | "outbox full"
  | "stopping"
  | "waiting for the store";

/** The state by the first reason why a pod claims no more. */
const states = {
  stopping: "stopping",
  outbox_full: "outbox full",
  store_away: "waiting for the store",
  paused: "paused",
  alone: "alone",
  draining: "draining for one",
  full: "full",
} as const;

/**
 * Claims tasks, runs them, and stores their outcomes. Outcomes that come at about the same time are
 * stored in one statement.
 */
export function startWorker(options: WorkerOptions): Worker {
  const { podId, database, clock, random, handlers, log = silentLogger } = options;
  const { pollMs = 1_000, graceMs = 5_000, maxResultBytes = defaultMaxBytes } = options;
  const { onEvent = () => {}, onAbandoned = () => {}, outbox } = options;
  const names = [...handlers.keys()];
  const running = new Map<string, TaskAttempt>();
  /** Attempts whose outcome is not stored yet: running ones, and ones that have just ended. */
  const unfinished = new Set<TaskAttempt>();
  const givingUp = new AbortController();
  const { signal } = givingUp;
  const directWriter = createFinishWriter({
    ...options,
    signal,
    onWoken: () => loop.wake(),
    ...(outbox && { onTrouble: outbox.storeFailed }),
  });
  const finishWriter = outbox ? withOutbox(outbox, directWriter, signal) : directWriter;
  const ids = options.ids ?? uuidv7(clock, random);
  const finisher = createAttemptFinisher({ ...options, finishWriter, ids, signal });
  const progress = createTaskProgress(options);
  const report = createAttemptReports({ podId, clock, log, onEvent });
  const slots = createNameSlots(handlers);
  const { middleware = [], throttles } = options;
  const { storeStep } = finishWriter;
  const { prices } = options;
  const readSteps = createStepReader(database);
  const stepHost = { clock, random, ids, graceMs, readSteps, storeStep, prices };
  const steps = { ...stepHost, stopping: () => stopping, onEvent };
  const files = createTaskFiles({ ...options, ids, settings: options.fileSettings });
  const attemptParts = {
    database,
    progress,
    log,
    podId,
    maxResultBytes,
    middleware,
    throttles,
    steps,
    files,
  };

  let stopping = false;
  let draining = false;
  /** Outcomes and releases that are not stored yet. */
  let unstored = 0;

  const track = (work: Promise<void>) => {
    unstored++;
    void work.finally(() => {
      unstored--;
      idle.check();
    });
  };
  const isIdle = () => running.size === 0 && unstored === 0 && loop.inFlight === 0;
  const idle = untilIdle(clock, isIdle);
  const drainState = () => {
    if (!draining) return undefined;
    return isIdle() && (options.restHasDrained?.() ?? true) ? "drained" : "draining";
  };

  const flows = flowsOf(handlers.values());
  const versions = versionsOf(handlers.values());
  const claimCalls = createClaimCalls({
    ...options,
    names,
    flows: flows.size > 0 ? flows : undefined,
    versions: versions.size > 0 ? versions : undefined,
    limitOf: (name) => handlers.get(name)?.concurrency?.limit,
    log,
    signal,
    onAbandoned,
    onReleasing: (release) => track(release.then(loop.wake)),
  });

  const wakeLoop = () => loop.wake();
  const throttleGate =
    throttles &&
    createThrottleGate({ handlers, throttles, database, clock, pollMs, onPermits: wakeLoop });
  const adaptiveCapacity = createAdaptiveCapacity({ ...options, onChange: wakeLoop });

  const loop = createClaimLoop({
    ...options,
    names: names.length,
    pollMs,
    claimCalls,
    slots,
    adaptiveCapacity,
    throttleGate,
    outbox,
    report,
    running,
    unfinished,
    accept: (claimed, nowMs, answeredMs) =>
      isNewest(claimed) ? hold(claimed, nowMs, answeredMs) : undefined,
    start: (attempt) => begin(attempt),
    release: (attempt) => end(attempt, { type: "interrupted" }),
    aheadNames: aheadNames(handlers),
    aheadLimits: options.ahead,
    log,
    onAnswered: idle.check,
  });

  /**
   * Two claims in flight may bring the same task, if recovery released it from the first of them.
   * Their answers come in any order, and the newer token counts.
   */
  const isNewest = ({ taskId, token }: Claim): boolean => {
    const other = running.get(taskId);
    if (other === undefined) return true;
    if (other.claim.token > token) return false;
    stopAttempt(other, "claim_lost");
    // A run may have been released and claimed again before its last driver noticed.
    if (other.handler.flow) other.abandon?.();
    else end(other, outcomeOfThrown(other, undefined));
    return true;
  };

  const begin = (attempt: TaskAttempt): void => {
    const { flow } = attempt.handler;
    // A flow's driver releases the run itself. Only then does a cancelled run go on to its
    // finalizers.
    if (stopping && !flow) return end(attempt, { type: "interrupted" });
    if (attempt.throttled !== undefined && "refused" in attempt.throttled) {
      return end(attempt, attempt.throttled.refused);
    }
    attempt.begun = true;
    attempt.beganMs = clock.monotonic();
    const { taskId, name } = attempt.claim;
    const origin = {
      by: "handler",
      from: { id: taskId, what: flow ? "run" : "task" },
      fields: { task: taskId, name, pod: podId },
      log,
    } as const;
    if (flow) {
      return void runWithOrigin(origin, () => flow.drive(attempt, driverHost)).then((driven) =>
        end(attempt, driven),
      );
    }
    const outcome = runWithOrigin(origin, () => executeAttempt(attempt, attemptParts));
    if (outcome instanceof Promise) void outcome.then((later) => end(attempt, later));
    else end(attempt, outcome);
  };

  const hold = (claimed: Claim, nowMs: number, answeredMs: number): TaskAttempt => {
    const attempt = startAttempt(claimed, handlers.get(claimed.name)!, nowMs, answeredMs);
    running.set(claimed.taskId, attempt);
    unfinished.add(attempt);
    slots.acquire(claimed.name);
    deadlines.watch(attempt.actAtMs);
    return attempt;
  };

  /** Accepts the outcome of an attempt, once, and stores it. */
  const end = (attempt: TaskAttempt, outcome: AttemptOutcome | DriveResult): void => {
    if (attempt.ended) return;
    attempt.ended = true;
    attempt.endedMs = clock.monotonic();
    if (attempt.throttled !== undefined) releasePermit(attempt.throttled);
    if (outcome.type === "returned") progress.forget(attempt);
    // The task may have returned to this pod under a newer token, as a separate attempt.
    if (running.get(attempt.claim.taskId) === attempt) running.delete(attempt.claim.taskId);
    loop.attemptEnded(attempt);
    unstored++;
    // Steps that have ended are stored before the outcome, which would close the task for them.
    if (attempt.steps?.storing)
      void attempt.steps.whenStored().then(() => finish(attempt, outcome));
    else finish(attempt, outcome);
    loop.tryClaim();
  };

  const finish = createFinish({
    finisher,
    progress,
    report,
    leftTo: outbox ? "the next pod on this machine" : "recovery",
    onFinished(attempt, finished) {
      // A pod does not claim what it holds, so the attempt is released before the next claim.
      unfinished.delete(attempt);
      unstored--;
      if (loop.reserved !== undefined) loop.tryClaim();
      idle.check();
      if (finished === undefined) return;
      // A run that was to continue, but whose pod was believed dead, can be claimed again.
      if (finished.status === "pending" || finished.status === "claimed") loop.wake();
      else options.onEnded?.(finished.taskId);
    },
  });

  const deadlines = createDeadlines(
    clock,
    () => running.values(),
    (attempt) => {
      if (attempt.stopReason === undefined && attempt.steps?.storing) {
        // An ended step waits for the store, as an outcome would, and without a limit.
        attempt.actAtMs = clock.monotonic() + attempt.timeoutMs;
        deadlines.watch(attempt.actAtMs);
      } else if (attempt.stopReason === undefined) interrupt(attempt, "timeout");
      // The handler did not stop within its grace. It is abandoned and can store nothing any more.
      else if (attempt.handler.flow) {
        attempt.actAtMs = Infinity;
        attempt.abandon?.();
      } else end(attempt, outcomeOfThrown(attempt, undefined));
    },
  );

  const driverHost: DriverHost = {
    ...attemptParts,
    clock,
    random,
    ids,
    finishWriter: directWriter,
    signal,
    stopping: () => stopping,
    watch: deadlines.watch,
    onEvent,
  };

  const interrupt = (attempt: TaskAttempt, reason: StopReason) => {
    stopAttempt(attempt, reason);
    attempt.actAtMs = clock.monotonic() + (reason === "claim_lost" ? 0 : graceMs);
    deadlines.watch(attempt.actAtMs);
  };

  // This pod knows of its own commits, and claims for them would find nothing.
  const unsubscribe = database.subscribe((whose) => {
    if (whose !== "own") loop.wake();
  });
  const reasons = () =>
    reasonsOf({
      stopping,
      drain: drainState(),
      storeAway: loop.failing,
      outboxFull: outbox?.full === true,
      allPaused: loop.paused,
      pausedNames: claimCalls.pausedNames,
      alone: loop.runsAlone,
      draining: loop.reserved !== undefined,
      held: running.size,
      capacity: adaptiveCapacity.capacity,
      overload: adaptiveCapacity.overload,
      limits: options.pressure?.limits,
      fullNames: slots.full,
      blockedDemand: throttleGate?.blocked ?? [],
    });
  const state = (): PodState => {
    const drain = drainState();
    const holds = capacityOf(adaptiveCapacity.capacity);
    return { holds, ...(drain && { drain }), reasons: reasons() };
  };
  const statusPublisher = createStatusPublisher({ ...options, state });
  const polling = startPolling({
    ...options,
    pollMs,
    log,
    running: () => running.values(),
    reserved: () => loop.reserved,
    onPoll() {
      loop.wake();
      statusPublisher.publish();
    },
    interrupt,
    onTaken: loop.dropReserved,
  });
  loop.tryClaim();

  return {
    wake: loop.wake,
    claimWithin: (stored) =>
      names.some((name) => stored.has(name)) ? loop.claimWithin() : undefined,
    get running() {
      return running.size;
    },
    longestRunning: (count) => longestOf(running.values(), count),
    get hasSuspect() {
      return loop.hasSuspect;
    },
    get state() {
      if (!stopping && draining) return drainState()!;
      return stateOf(reasons()) ?? (loop.inFlight > 0 ? "claiming" : "idle");
    },
    get capacity() {
      return state();
    },
    drain(drains) {
      if (draining === drains) return;
      draining = drains;
      loop.drain(drains);
      statusPublisher.publish();
    },
    async stop({ waitMs }) {
      stopping = true;
      unsubscribe();
      loop.stop();
      adaptiveCapacity.stop();
      throttleGate?.stop();
      statusPublisher.publish();
      const published = statusPublisher.stop();
      polling.stop();
      await idle.within(waitMs);
      for (const attempt of running.values()) interrupt(attempt, "shutdown");
      await idle.within(graceMs * 2);
      await outbox?.flush();
      await published;
      deadlines.stop();
      progress.stop();
      givingUp.abort();
    },
  };
}

/**
 * One timer for many deadlines, because a timer per task costs more than a short task. `act` is
 * called with each due item; it sets a later deadline by calling `watch` again.
 */
export function createDeadlines<Item extends { readonly actAtMs: number }>(
  clock: Clock,
  items: () => Iterable<Item>,
  act: (item: Item) => void,
) {
  let armedMs = Infinity;
  let cancel: (() => void) | undefined;

  const fire = () => {
    armedMs = Infinity;
    cancel = undefined;
    const nowMs = clock.monotonic();
    for (const item of items()) if (item.actAtMs <= nowMs) act(item);
    let nextMs = Infinity;
    for (const item of items()) nextMs = Math.min(nextMs, item.actAtMs);
    if (nextMs < Infinity) watch(nextMs);
  };
  const watch = (atMs: number) => {
    if (atMs >= armedMs) return;
    armedMs = atMs;
    cancel?.();
    cancel = clock.after(Math.max(0, atMs - clock.monotonic()), fire);
  };
  return { watch, stop: () => cancel?.() };
}

/** The state by the first reason; undefined if the pod could claim more. */
function stateOf([first]: readonly Reason[]): WorkerState | undefined {
  return first && first.code in states ? states[first.code as keyof typeof states] : undefined;
}
