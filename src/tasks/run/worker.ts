import type { Clock } from "../../base/clock.ts";
import { type Ids, uuidv7 } from "../../base/ids.ts";
import { defaultMaxBytes } from "../../base/json.ts";
import { type Logger, silentLogger } from "../../base/log.ts";
import type { Random } from "../../base/random.ts";
import { runAs } from "../../pods/unhandled-errors.ts";
import type { Database } from "../../store/database.ts";
import type { Throttles } from "../../throttles/registry.ts";
import {
  type Capacity,
  capacityOf,
  createElastic,
  createNameSlots,
  type ElasticParts,
} from "../claim/capacity.ts";
import { createClaimLoop } from "../claim/claim-loop.ts";
import { createClaiming } from "../claim/claim.ts";
import { createThrottleGate } from "../claim/throttle-gate.ts";
import { letGo } from "../claim/throttle.ts";
import { createConcluding, createEndings } from "../finish/finish.ts";
import { createFinishing } from "../finish/finish-writer.ts";
import { keepingIn, type Outbox } from "../finish/outbox.ts";
import type { Ending } from "../finish/outcome.ts";
import type { Claim } from "../rows.ts";
import type { FlowVersions } from "../sql/claim.ts";
import type { TaskHandler } from "../task.ts";
import {
  type Driven,
  type DriveParts,
  endingOf,
  type Running,
  startedRun,
  type StopReason,
  stopRun,
} from "./attempt.ts";
import { createReporting, type WorkerEvent } from "./events.ts";
import { runHandler } from "./execute.ts";
import { startPolling } from "./held-claims.ts";
import type { LocalProgress } from "./local-progress.ts";
import type { Middleware } from "./middleware.ts";
import { createTelling, type PodState, type Reason, reasonsOf } from "./pod-status.ts";
import { createProgress } from "./progress.ts";

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
  pressure?: ElasticParts["pressure"];
  /** How long a lost hint may delay a claim or a cancel. */
  pollMs?: number;
  /** How long a handler has to settle after its signal has fired. */
  graceMs?: number;
  maxResultBytes?: number;
  /** Runs around every handler, the first outermost. */
  middleware?: readonly Middleware[];
  /** Whose permits handlers use. Without it none of them may have a throttle. */
  throttles?: Throttles;
  /** Where endings are kept that the store can't take now. Default: in memory alone. */
  outbox?: Outbox;
  /** Where progress is kept of handlers that ask for that. Default: in the store alone. */
  localProgress?: LocalProgress;
  /** Told of claim calls that were given up, for the heartbeat's upsert. */
  onFloor?: (call: number) => void;
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
  const { onEvent = () => {}, onFloor = () => {}, outbox } = options;
  const names = [...handlers.keys()];
  const running = new Map<string, Running>();
  /** Attempts whose ending isn't stored yet: what runs, and what has just ended. */
  const unsettled = new Set<Running>();
  const givingUp = new AbortController();
  const { signal } = givingUp;
  const sending = createFinishing({
    ...options,
    signal,
    onWoken: () => loop.wake(),
    ...(outbox && { onTrouble: outbox.trouble }),
  });
  const finishing = outbox ? keepingIn(outbox, sending, signal) : sending;
  const ids = options.ids ?? uuidv7(clock, random);
  const concluding = createConcluding({ ...options, finishing, ids, signal });
  const progress = createProgress(options);
  const report = createReporting({ podId, clock, log, onEvent });
  const slots = createNameSlots(handlers);
  const { middleware = [], throttles } = options;
  const runParts = { database, progress, log, podId, maxResultBytes, middleware, throttles };

  let stopping = false;
  /** Endings and releases that aren't stored yet. */
  let storing = 0;

  const pending = (work: Promise<void>) => {
    storing++;
    void work.finally(() => {
      storing--;
      quiet.check();
    });
  };
  const quiet = createQuiet(
    clock,
    () => running.size === 0 && storing === 0 && loop.underWay === 0,
  );

  const claims = createClaiming({
    ...options,
    names,
    flows: flowsOf(handlers),
    limitOf: (name) => handlers.get(name)?.concurrency?.limit,
    log,
    signal,
    onFloor,
    onReleasing: (release) => pending(release.then(loop.wake)),
  });

  const onRoom = () => loop.wake();
  const gate =
    throttles && createThrottleGate({ handlers, throttles, database, clock, pollMs, onRoom });
  const elastic = createElastic({ ...options, onChange: onRoom });

  const loop = createClaimLoop({
    ...options,
    names: names.length,
    pollMs,
    claims,
    slots,
    elastic,
    gate,
    outbox,
    report,
    running,
    unsettled,
    take: (claimed, nowMs) => (isNewest(claimed) ? hold(claimed, nowMs) : undefined),
    begin: (run) => begin(run),
    onAnswered: quiet.check,
  });

  /**
   * Two claims that are under way together may bring the same task, where recovery has taken it from
   * the first of them. Their answers come in any order, and the newer token counts.
   */
  const isNewest = ({ taskId, token }: Claim): boolean => {
    const other = running.get(taskId);
    if (other === undefined) return true;
    if (other.claim.token > token) return false;
    stopRun(other, "claim_lost");
    // A run may have been given back and claimed again before its last drive has heard of it.
    if (other.handler.flow) other.abandon?.();
    else end(other, endingOf(other, undefined));
    return true;
  };

  const begin = (run: Running): void => {
    const { flow } = run.handler;
    // Whoever drives a run gives it back itself: only so does what was cancelled go on to its finalizers.
    if (stopping && !flow) return end(run, { type: "interrupted" });
    if (run.throttled !== undefined && "refused" in run.throttled) {
      return end(run, run.throttled.refused);
    }
    const { taskId, name } = run.claim;
    const origin = { by: "handler", fields: { task: taskId, name, pod: podId }, log } as const;
    if (flow) {
      return void runAs(origin, () => flow.drive(run, driveParts)).then((driven) =>
        end(run, driven),
      );
    }
    const ending = runAs(origin, () => runHandler(run, runParts));
    if (ending instanceof Promise) void ending.then((later) => end(run, later));
    else end(run, ending);
  };

  const hold = (claimed: Claim, nowMs: number): Running => {
    const run = startedRun(claimed, handlers.get(claimed.name)!, nowMs);
    running.set(claimed.taskId, run);
    unsettled.add(run);
    slots.took(claimed.name);
    deadlines.watch(run.actAtMs);
    return run;
  };

  /** Takes the ending of an attempt, once, and stores it. */
  const end = (run: Running, ending: Ending | Driven): void => {
    if (run.ended) return;
    run.ended = true;
    if (run.throttled !== undefined) letGo(run.throttled);
    if (ending.type === "returned") progress.forget(run);
    // The task may have come back to this pod under a newer token, as a run of its own.
    if (running.get(run.claim.taskId) === run) running.delete(run.claim.taskId);
    loop.ended(run.claim);
    storing++;
    store(run, ending);
    loop.look();
  };

  const store = createEndings({
    concluding,
    progress,
    report,
    leftTo: outbox ? "kept for the next pod on this machine" : "left to recovery",
    onPending: loop.wake,
    onEnded: options.onEnded ?? (() => {}),
    onSettled(run) {
      unsettled.delete(run);
      storing--;
      if (loop.reserved !== undefined) loop.look();
      quiet.check();
    },
  });

  const deadlines = createDeadlines(
    clock,
    () => running.values(),
    (run) => {
      if (run.stopped === undefined) interrupt(run, "timeout");
      // It was told to stop and didn't: it is left to itself, and can store nothing any more.
      else if (run.handler.flow) {
        run.actAtMs = Infinity;
        run.abandon?.();
      } else end(run, endingOf(run, undefined));
    },
  );

  const driveParts: DriveParts = {
    ...runParts,
    clock,
    random,
    ids,
    finishing: sending,
    signal,
    stopping: () => stopping,
    watch: deadlines.watch,
    onEvent,
  };

  const interrupt = (run: Running, reason: StopReason) => {
    stopRun(run, reason);
    run.actAtMs = clock.monotonic() + (reason === "claim_lost" ? 0 : graceMs);
    deadlines.watch(run.actAtMs);
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
      pausedNames: claims.pausedNames,
      alone: loop.runsAlone,
      draining: loop.reserved !== undefined,
      held: running.size,
      capacity: elastic.capacity,
      strain: elastic.strain,
      limits: options.pressure?.limits,
      fullNames: slots.full,
      shutLines: gate?.shut ?? [],
    });
  const telling = createTelling({
    ...options,
    state: () => ({ holds: capacityOf(elastic.capacity), reasons: reasons() }),
  });
  const polling = startPolling({
    ...options,
    pollMs,
    log,
    running: () => running.values(),
    reserved: () => loop.reserved,
    onPoll() {
      loop.wake();
      telling.look();
    },
    interrupt,
    onTaken: loop.reservedIsGone,
  });
  loop.look();

  return {
    wake: loop.wake,
    get running() {
      return running.size;
    },
    get hasSuspect() {
      return loop.hasSuspect;
    },
    get state() {
      return stateOf(reasons()) ?? (loop.underWay > 0 ? "claiming" : "idle");
    },
    get capacity() {
      return { holds: capacityOf(elastic.capacity), reasons: reasons() };
    },
    async stop({ waitMs }) {
      stopping = true;
      unsubscribe();
      loop.stop();
      elastic.stop();
      gate?.stop();
      telling.look();
      const told = telling.stop();
      polling.stop();
      await quiet.within(waitMs);
      for (const run of running.values()) interrupt(run, "shutdown");
      await quiet.within(graceMs * 2);
      await outbox?.settle();
      await told;
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
function createQuiet(clock: Clock, isQuiet: () => boolean) {
  let onQuiet: (() => void) | undefined;
  const check = () => {
    if (isQuiet()) onQuiet?.();
  };
  return {
    check,
    /** Resolves when all is quiet, or when the time is over. */
    async within(limitMs: number): Promise<void> {
      let cancel = () => {};
      const limit = new Promise<void>((resolve) => {
        cancel = clock.after(limitMs, resolve);
      });
      const quiet = new Promise<void>((resolve) => {
        onQuiet = resolve;
        check();
      });
      await Promise.race([quiet, limit]);
      cancel();
    },
  };
}
