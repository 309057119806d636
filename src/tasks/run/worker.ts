import type { Clock } from "../../base/clock.ts";
import { type Ids, uuidv7 } from "../../base/ids.ts";
import { defaultMaxBytes } from "../../base/json.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { settledWithin } from "../../base/timeout.ts";
import { runWithOrigin } from "../../pods/unhandled-errors.ts";
import type { Database } from "../../store/database.ts";
import type { ThrottleRegistry } from "../../throttles/registry.ts";
import {
  type Capacity,
  capacityOf,
  createAdaptiveCapacity,
  createNameSlots,
  type AdaptiveCapacityParts,
} from "../claim/capacity.ts";
import { createClaimLoop } from "../claim/claim-loop.ts";
import { createClaimCalls } from "../claim/claim.ts";
import { createThrottleGate } from "../claim/throttle-gate.ts";
import { releasePermit } from "../claim/throttle.ts";
import { createAttemptFinisher, createFinish } from "../finish/finish.ts";
import { createFinishWriter } from "../finish/finish-writer.ts";
import { withOutbox, type Outbox } from "../finish/outbox.ts";
import type { AttemptOutcome } from "../finish/outcome.ts";
import type { Claim } from "../rows.ts";
import type { FlowVersions } from "../sql/claim.ts";
import type { TaskHandler } from "../task.ts";
import {
  type DriveResult,
  type DriverHost,
  outcomeOfThrown,
  type TaskAttempt,
  startAttempt,
  type StopReason,
  stopAttempt,
} from "./attempt.ts";
import { createAttemptReports, type WorkerEvent } from "./events.ts";
import { executeAttempt } from "./execute.ts";
import { startPolling } from "./held-claims.ts";
import type { LocalProgress } from "./local-progress.ts";
import type { Middleware } from "./middleware.ts";
import { createStatusPublisher, type PodState, type Reason, reasonsOf } from "./pod-status.ts";
import { createTaskProgress } from "./progress.ts";

export type { WorkerEvent };

export type WorkerOptions = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  /** Makes the ids of what follows failures. */
  ids?: Ids;
  handlers: ReadonlyMap<string, TaskHandler>;
  capacity: Capacity;
  /** What lowers the capacity, and when. Without it nothing does. */
  pressure?: AdaptiveCapacityParts["pressure"];
  /** How long a lost hint may delay a claim or a cancel. */
  pollMs?: number;
  /** How long a handler has to settle after its signal has fired. */
  graceMs?: number;
  maxResultBytes?: number;
  /** Runs around every handler, the first outermost. */
  middleware?: readonly Middleware[];
  /** Whose permits handlers use. Without it none of them may have a throttle. */
  throttles?: ThrottleRegistry;
  /** Where endings are kept that the store can't take now. Default: in memory alone. */
  outbox?: Outbox;
  /** Where progress is kept of handlers that ask for that. Default: in the store alone. */
  localProgress?: LocalProgress;
  /** Told of claim calls that were given up, for the heartbeat's upsert. */
  onAbandoned?: (call: number) => void;
  onEvent?: (event: WorkerEvent) => void;
  /** Told of tasks that have ended here, for those who wait for them in this process. */
  onEnded?: (taskId: string) => void;
  /** Whether a turn that pods were lost under has just begun on this pod. Default: none has. */
  hasSuspectTurn?: () => boolean;
  log?: Logger;
};

export type Worker = {
  /** There may be something to claim. */
  wake(): void;
  readonly running: number;
  /** A task that pods died under runs here, alone among tasks, or is about to. */
  readonly hasSuspect: boolean;
  /** Why nothing is claimed right now, for people. */
  readonly state: WorkerState;
  /** How many tasks it takes on at most right now, and everything that keeps it from claiming more. */
  readonly capacity: PodState;
  /** Stops claiming, waits for what runs, then tells it to stop, then gives it back. */
  stop(options: { waitMs: number }): Promise<void>;
};

/**
 * Claims tasks, runs them, and stores how they ended. Whatever ends at about the same time is finished
 * in one statement.
 */
export function startWorker(options: WorkerOptions): Worker {
  const { podId, database, clock, random, handlers, log = silentLogger } = options;
  const { pollMs = 1_000, graceMs = 5_000, maxResultBytes = defaultMaxBytes } = options;
  const { onEvent = () => {}, onAbandoned = () => {}, outbox } = options;
  const names = [...handlers.keys()];
  const running = new Map<string, TaskAttempt>();
  /** Attempts whose ending isn't stored yet: what runs, and what has just ended. */
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
  const attemptParts = { database, progress, log, podId, maxResultBytes, middleware, throttles };

  let stopping = false;
  /** Endings and releases that aren't stored yet. */
  let unstored = 0;

  const track = (work: Promise<void>) => {
    unstored++;
    void work.finally(() => {
      unstored--;
      idle.check();
    });
  };
  const idle = untilIdle(clock, () => running.size === 0 && unstored === 0 && loop.inFlight === 0);

  const claimCalls = createClaimCalls({
    ...options,
    names,
    flows: flowsOf(handlers),
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
    accept: (claimed, nowMs) => (isNewest(claimed) ? hold(claimed, nowMs) : undefined),
    start: (attempt) => begin(attempt),
    onAnswered: idle.check,
  });

  /**
   * Two claims that are under way together may bring the same task, where recovery has taken it from
   * the first of them. Their answers come in any order, and the newer token counts.
   */
  const isNewest = ({ taskId, token }: Claim): boolean => {
    const other = running.get(taskId);
    if (other === undefined) return true;
    if (other.claim.token > token) return false;
    stopAttempt(other, "claim_lost");
    // A run may have been given back and claimed again before its last drive has heard of it.
    if (other.handler.flow) other.abandon?.();
    else end(other, outcomeOfThrown(other, undefined));
    return true;
  };

  const begin = (attempt: TaskAttempt): void => {
    const { flow } = attempt.handler;
    // Whoever drives a run gives it back itself: only so does what was cancelled go on to its finalizers.
    if (stopping && !flow) return end(attempt, { type: "interrupted" });
    if (attempt.throttled !== undefined && "refused" in attempt.throttled) {
      return end(attempt, attempt.throttled.refused);
    }
    const { taskId, name } = attempt.claim;
    const origin = { by: "handler", fields: { task: taskId, name, pod: podId }, log } as const;
    if (flow) {
      return void runWithOrigin(origin, () => flow.drive(attempt, driverHost)).then((driven) =>
        end(attempt, driven),
      );
    }
    const outcome = runWithOrigin(origin, () => executeAttempt(attempt, attemptParts));
    if (outcome instanceof Promise) void outcome.then((later) => end(attempt, later));
    else end(attempt, outcome);
  };

  const hold = (claimed: Claim, nowMs: number): TaskAttempt => {
    const attempt = startAttempt(claimed, handlers.get(claimed.name)!, nowMs);
    running.set(claimed.taskId, attempt);
    unfinished.add(attempt);
    slots.acquire(claimed.name);
    deadlines.watch(attempt.actAtMs);
    return attempt;
  };

  /** Takes the ending of an attempt, once, and stores it. */
  const end = (attempt: TaskAttempt, outcome: AttemptOutcome | DriveResult): void => {
    if (attempt.ended) return;
    attempt.ended = true;
    if (attempt.throttled !== undefined) releasePermit(attempt.throttled);
    if (outcome.type === "returned") progress.forget(attempt);
    // The task may have come back to this pod under a newer token, as a run of its own.
    if (running.get(attempt.claim.taskId) === attempt) running.delete(attempt.claim.taskId);
    loop.attemptEnded(attempt.claim);
    unstored++;
    finish(attempt, outcome);
    loop.tryClaim();
  };

  const finish = createFinish({
    finisher,
    progress,
    report,
    leftTo: outbox ? "kept for the next pod on this machine" : "left to recovery",
    onPending: loop.wake,
    onEnded: options.onEnded ?? (() => {}),
    onSettled(attempt) {
      unfinished.delete(attempt);
      unstored--;
      if (loop.reserved !== undefined) loop.tryClaim();
      idle.check();
    },
  });

  const deadlines = createDeadlines(
    clock,
    () => running.values(),
    (attempt) => {
      if (attempt.stopReason === undefined) interrupt(attempt, "timeout");
      // It was told to stop and didn't: it is left to itself, and can store nothing any more.
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

  // What this pod commits itself it knows of, and its claims would only find nothing.
  const unsubscribe = database.subscribe((whose) => {
    if (whose !== "own") loop.wake();
  });
  const reasons = () =>
    reasonsOf({
      stopping,
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
  const statusPublisher = createStatusPublisher({
    ...options,
    state: () => ({ holds: capacityOf(adaptiveCapacity.capacity), reasons: reasons() }),
  });
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
    get running() {
      return running.size;
    },
    get hasSuspect() {
      return loop.hasSuspect;
    },
    get state() {
      return stateOf(reasons()) ?? (loop.inFlight > 0 ? "claiming" : "idle");
    },
    get capacity() {
      return { holds: capacityOf(adaptiveCapacity.capacity), reasons: reasons() };
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

/** The flows among the handlers, with their versions; undefined where there is none. */
function flowsOf(handlers: ReadonlyMap<string, TaskHandler>): FlowVersions | undefined {
  const flows = [...handlers.values()].flatMap(({ name, flow }): [string, number][] =>
    flow ? [[name, flow.version]] : [],
  );
  return flows.length > 0 ? new Map(flows) : undefined;
}

/** What a pod is doing, in a word or two. */
type WorkerState =
  | "alone"
  | "claiming"
  | "draining for one"
  | "full"
  | "idle"
  | "paused"
  | "outbox full"
  | "stopping"
  | "waiting for the store";

/** What is said of a pod in a word or two, by the first reason why it claims no more. */
const states = {
  stopping: "stopping",
  outbox_full: "outbox full",
  store_away: "waiting for the store",
  paused: "paused",
  alone: "alone",
  draining: "draining for one",
  full: "full",
} as const;

/** What the first reason says why a pod claims no more; undefined where it could. */
function stateOf([first]: readonly Reason[]): WorkerState | undefined {
  return first && first.code in states ? states[first.code as keyof typeof states] : undefined;
}

/**
 * One timer for many deadlines, because a timer per task would cost more than a short task does.
 * `act` is called with what is due; it sets later deadlines by calling `watch` again.
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

/** Waits until a pod has nothing left to do. `check` is called whenever something has ended. */
function untilIdle(clock: Clock, isIdle: () => boolean) {
  let onIdle: (() => void) | undefined;
  const check = () => {
    if (isIdle()) onIdle?.();
  };
  return {
    check,
    /** Resolves when all is quiet, or when the time is over. */
    async within(limitMs: number): Promise<void> {
      const idle = new Promise<void>((resolve) => {
        onIdle = resolve;
        check();
      });
      await settledWithin(clock, limitMs, idle);
    },
  };
}
