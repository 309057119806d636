import type { Clock } from "../base/clock.ts";
import { type Ids, uuidv7 } from "../base/ids.ts";
import { defaultMaxBytes } from "../base/json.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import type { Random } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import type { Throttles } from "../throttle/throttles.ts";
import { createAnnouncing } from "./announce.ts";
import { type Capacity, capacityOf, claimLimit } from "./capacity.ts";
import { createClaiming } from "./claiming.ts";
import { createConcluding } from "./conclude.ts";
import { createDeadlines } from "./deadlines.ts";
import type { Driven, DriveParts } from "./drive.ts";
import { createEndings } from "./endings.ts";
import { createFinishing } from "./finishing.ts";
import { createElastic, type ElasticParts } from "./elastic.ts";
import type { Middleware } from "./middleware.ts";
import { createNameSlots, fewest, limitedTo } from "./name-slots.ts";
import type { LocalProgress } from "./local-progress.ts";
import { keepingIn } from "./outbox/keeping.ts";
import type { Outbox } from "./outbox/outbox.ts";
import { createPace } from "./pace.ts";
import { createProgress } from "./progress.ts";
import { startPolling } from "./polling.ts";
import { createQuiet } from "./quiet.ts";
import { reasonsOf } from "./reasons.ts";
import { createReporting, type WorkerEvent } from "./report.ts";
import type { Claim } from "./row.ts";
import { runHandler } from "./run-handler.ts";
import { endingOf, type Running, startedRun, type StopReason, stopRun } from "./run.ts";
import { aloneAfterDeaths, type Ending } from "./settle.ts";
import type { FlowVersions } from "./statements/claim.ts";
import type { TaskHandler } from "./task.ts";
import { createTelling, type PodState } from "./telling.ts";
import { createThrottleGate } from "./throttle-gate.ts";
import { letGo } from "./throttle-scene.ts";
import { stateOf, type WorkerState } from "./worker-state.ts";

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
  log?: Logger;
};

export type Worker = {
  /** There may be something to claim. */
  wake(): void;
  readonly running: number;
  /** Why nothing is claimed right now, for people. */
  readonly state: WorkerState;
  /** How many tasks it takes on at most right now, and everything that keeps it from claiming more. */
  readonly capacity: PodState;
  /** Stops claiming, waits for what runs, then tells it to stop, then gives it back. */
  stop(options: { waitMs: number }): Promise<void>;
};

/**
 * Claims tasks, runs them, and stores how they ended. One claim call is under way at a time, or two
 * while there is a backlog, and whatever ends meanwhile is finished in one statement.
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
    onWoken: () => wake(),
    ...(outbox && { onTrouble: outbox.trouble }),
  });
  const finishing = outbox ? keepingIn(outbox, sending, signal) : sending;
  const ids = options.ids ?? uuidv7(clock, random);
  const concluding = createConcluding({ ...options, finishing, ids, signal });
  const progress = createProgress(options);
  const pace = createPace(options);
  const report = createReporting({ podId, clock, log, onEvent });
  const slots = createNameSlots(handlers);
  const { middleware = [] } = options;
  const runParts = {
    database,
    progress,
    log,
    podId,
    maxResultBytes,
    middleware,
    throttles: options.throttles,
  };

  let stopping = false;
  /** Claim calls under way, and how many tasks they may bring. */
  let underWay = 0;
  let asked = 0;
  /** The last claim was full, so another would probably be, too. */
  let backlog = false;
  /** The last claim was full or somebody hinted, so there is probably something to claim. */
  let more = true;
  /** A task that must run alone and waits for this pod to be empty. */
  let reserved: string | undefined;
  let runsAlone = false;
  /** Everything that this pod knows is paused. */
  let paused = false;
  /** Endings and releases that aren't stored yet. */
  let storing = 0;
  let cancelWake: (() => void) | undefined;

  const pending = (work: Promise<void>) => {
    storing++;
    void work.finally(() => {
      storing--;
      quiet.check();
    });
  };
  const quiet = createQuiet(clock, () => running.size === 0 && storing === 0 && underWay === 0);

  const claims = createClaiming({
    ...options,
    names,
    flows: flowsOf(handlers),
    limitOf: (name) => handlers.get(name)?.concurrency?.limit,
    log,
    signal,
    onFloor,
    onReleasing: (release) => pending(release.then(wake)),
  });

  const wake = () => {
    more = true;
    claimSoon();
  };
  const announcing = createAnnouncing({ ...options, onWaiting: wake });
  const wakeIn = (delayMs: number) => {
    cancelWake?.();
    // A claim that was under way when the pod was stopped mustn't keep its process alive.
    if (!stopping) cancelWake = clock.after(delayMs, wake);
  };

  const { throttles } = options;
  const gate =
    throttles && createThrottleGate({ handlers, throttles, database, clock, pollMs, onRoom: wake });

  const elastic = createElastic({ ...options, onChange: () => wake() });
  const room = (held: number) => limitedTo(claimLimit(elastic.capacity, held), slots, names.length);

  const claimSoon = () => {
    if (stopping || names.length === 0 || outbox?.full) return;
    if (underWay > 0) return claimBeside();
    let limit = reserved === undefined ? room(running.size + asked) : 1;
    announcing.set(!more && limit > 0 && !runsAlone);
    if (!more || runsAlone) return;
    const tooEarlyMs = pace.waitMs();
    if (tooEarlyMs > 0) return wakeIn(tooEarlyMs);
    if (reserved !== undefined && unsettled.size > 0) return;
    if (gate !== undefined && reserved === undefined && limit > 0) {
      gate.look(limit);
      limit = gate.room(limit);
      // Nothing comes of asking until there is a permit, and that is told.
      if (limit === 0) {
        more = false;
        announcing.set(true);
      }
    }
    if (limit > 0) void claim(limit);
  };

  // The store would wait for us else, while we read one answer and run what it brought. A claim of a
  // few tasks wouldn't be worth its transaction, so this is for pods that are at least half empty.
  const claimBeside = () => {
    // What is limited by name is counted when it has come, so then one claim waits for the other.
    if (!backlog || underWay > 1 || slots.any || gate !== undefined) return;
    const half = claimLimit(elastic.capacity, 0);
    if (running.size + asked > capacityOf(elastic.capacity) - half) return;
    if (reserved !== undefined || pace.waitMs() > 0) return;
    void claim(half);
  };

  const claim = async (limit: number): Promise<void> => {
    underWay++;
    asked += limit;
    more = false;
    const alone = reserved;
    reserved = undefined;
    // Nothing may come beside what must run alone.
    if (alone !== undefined) backlog = false;
    const startedMs = clock.monotonic();
    const passes = gate?.ask(alone === undefined ? limit : 0);
    try {
      // A pod that is taken for dead can lose a task again as soon as it has claimed it.
      const held = [...unsettled].map((run) => run.claim.taskId).concat(outbox?.leftOver ?? []);
      const most = slots.free && new Map(slots.free);
      const claimed = await (passes === undefined
        ? claims.claim(limit, alone, held, most)
        : claims.claim(limit, alone, held, fewest(most, passes.most), passes.together));
      underWay--;
      pace.succeeded();
      const { length } = claimed.claims;
      backlog = alone === undefined && length === limit;
      report.claimed(length, startedMs);
      runsAlone = alone !== undefined && length > 0;
      reserved ??= claimed.reserved;
      paused = claimed.paused === true;
      if (claimed.nextDueMs === 0) more = true;
      else if (claimed.nextDueMs !== undefined && claimed.nextDueMs < pollMs) {
        wakeIn(claimed.nextDueMs);
      }
      if (length === limit || alone !== undefined || reserved !== undefined) more = true;
      else if (length === 0) pace.foundNothing();
      // The next claim goes out before these run, so that the store works while they do.
      const nowMs = clock.monotonic();
      const begun: Running[] = [];
      for (const each of claimed.claims) if (isNewest(each)) begun.push(hold(each, nowMs));
      asked -= limit;
      if (most && alone === undefined && slots.answered(most, claimed.claims)) more = true;
      if (passes !== undefined) {
        for (const run of begun) passes.hand(run);
        if (passes.over("answered")) more = true;
      }
      claimSoon();
      for (const run of begun) {
        // Whoever drives a run gives it back itself: only so does what was cancelled go on to its finalizers.
        if (stopping && !run.handler.flow) end(run, { type: "interrupted" });
        else if (run.throttled !== undefined && "refused" in run.throttled) {
          end(run, run.throttled.refused);
        } else begin(run);
      }
    } catch (error) {
      underWay--;
      asked -= limit;
      backlog = false;
      more = true;
      report.claimFailed(error, pace.failed());
      passes?.over("failed");
      claimSoon();
    }
    quiet.check();
  };

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
    if (flow) return void flow.drive(run, driveParts).then((driven) => end(run, driven));
    const ending = runHandler(run, runParts);
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
    if (run.claim.deaths >= aloneAfterDeaths) runsAlone = false;
    if (slots.ended(run.claim.name)) more = true;
    storing++;
    store(run, ending);
    claimSoon();
  };

  const store = createEndings({
    concluding,
    progress,
    report,
    leftTo: outbox ? "kept for the next pod on this machine" : "left to recovery",
    onPending: wake,
    onEnded: options.onEnded ?? (() => {}),
    onSettled(run) {
      unsettled.delete(run);
      storing--;
      if (reserved !== undefined) claimSoon();
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
    if (whose !== "own") wake();
  });
  const reasons = () =>
    reasonsOf({
      stopping,
      storeAway: pace.failing,
      outboxFull: outbox?.full === true,
      allPaused: paused,
      pausedNames: claims.pausedNames,
      alone: runsAlone,
      draining: reserved !== undefined,
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
    reserved: () => reserved,
    onPoll() {
      wake();
      telling.look();
    },
    interrupt,
    onTaken() {
      reserved = undefined;
      wake();
    },
  });
  claimSoon();

  return {
    wake,
    get running() {
      return running.size;
    },
    get state() {
      return stateOf(reasons()) ?? (underWay > 0 ? "claiming" : "idle");
    },
    get capacity() {
      return { holds: capacityOf(elastic.capacity), reasons: reasons() };
    },
    async stop({ waitMs }) {
      stopping = true;
      unsubscribe();
      announcing.stop();
      elastic.stop();
      gate?.stop();
      telling.look();
      const told = telling.stop();
      polling.stop();
      cancelWake?.();
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
