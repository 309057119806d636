import type { Clock } from "../base/clock.ts";
import { FlotillaError, messageOf } from "../base/errors.ts";
import { type Ids, uuidv7 } from "../base/ids.ts";
import { defaultMaxBytes } from "../base/json.ts";
import { type Logger, silentLogger } from "../base/log.ts";
import { fraction, type Random } from "../base/random.ts";
import type { Database } from "../store/database.ts";
import { createAnnouncing } from "./announce.ts";
import { type Capacity, capacityOf, claimLimit } from "./capacity.ts";
import { createClaiming } from "./claiming.ts";
import { type Conclusion, createConcluding } from "./conclude.ts";
import { createDeadlines } from "./deadlines.ts";
import { createFinishing } from "./finishing.ts";
import { lookAtHeld } from "./held.ts";
import type { Middleware } from "./middleware.ts";
import type { LocalProgress } from "./local-progress.ts";
import { keepingIn } from "./outbox/keeping.ts";
import type { Outbox } from "./outbox/outbox.ts";
import { createPace } from "./pace.ts";
import { createProgress } from "./progress.ts";
import type { Claim, TaskError } from "./row.ts";
import {
  endingOf,
  runHandler,
  type Running,
  startedRun,
  type StopReason,
  stopRun,
  taskFields,
} from "./run.ts";
import { aloneAfterDeaths, type Ending } from "./settle.ts";
import type { Finish } from "./statements/finish.ts";
import type { TaskHandler } from "./task.ts";
import { endRunSpan } from "./trace.ts";

/** What a worker tells those who count. */
export type WorkerEvent =
  | { readonly type: "claimed"; readonly tasks: number; readonly tookMs: number }
  | { readonly type: "claim_failed"; readonly code: string; readonly waitMs: number }
  | {
      readonly type: "ended";
      readonly name: string;
      readonly outcome: Outcome;
      readonly tookMs: number;
    };

export type Outcome =
  | "completed"
  | "retry"
  | "failed"
  | "cancelled"
  | "released"
  | "snoozed"
  | "lost";

export type WorkerOptions = {
  podId: string;
  database: Database;
  clock: Clock;
  random: Random;
  /** Makes the ids of what follows failures. */
  ids?: Ids;
  handlers: ReadonlyMap<string, TaskHandler>;
  capacity: Capacity;
  /** How long a lost hint may delay a claim or a cancel. */
  pollMs?: number;
  /** How long a handler has to settle after its signal has fired. */
  graceMs?: number;
  maxResultBytes?: number;
  /** Runs around every handler, the first outermost. */
  middleware?: readonly Middleware[];
  /** Where endings are kept that the store can't take now. Default: in memory alone. */
  outbox?: Outbox;
  /** Where progress is kept of handlers that ask for that. Default: in the store alone. */
  localProgress?: LocalProgress;
  /** Told of claim calls that were given up, for the heartbeat's upsert. */
  onFloor?: (call: number) => void;
  onEvent?: (event: WorkerEvent) => void;
  log?: Logger;
};

export type Worker = {
  /** There may be something to claim. */
  wake(): void;
  readonly running: number;
  /** Why nothing is claimed right now, for people. */
  readonly state: WorkerState;
  /** Stops claiming, waits for what runs, then tells it to stop, then gives it back. */
  stop(options: { waitMs: number }): Promise<void>;
};

export type WorkerState =
  | "alone"
  | "claiming"
  | "draining for one"
  | "full"
  | "idle"
  | "outbox full"
  | "stopping"
  | "waiting for the store";

/**
 * Claims tasks, runs them, and stores how they ended. One claim call is under way at a time, or two
 * while there is a backlog, and whatever ends meanwhile is finished in one statement.
 */
export function startWorker(options: WorkerOptions): Worker {
  const { podId, database, clock, random, handlers, capacity, log = silentLogger } = options;
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
    ...(outbox && { onTrouble: outbox.trouble }),
  });
  const finishing = outbox ? keepingIn(outbox, sending, signal) : sending;
  const ids = options.ids ?? uuidv7(clock, random);
  const conclude = createConcluding({ ...options, finishing, ids, signal });
  const progress = createProgress(options);
  const pace = createPace(options);
  const { middleware = [] } = options;
  const runParts = {
    database,
    progress,
    log,
    podId,
    maxResultBytes,
    middleware,
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
  /** Endings and releases that aren't stored yet. */
  let storing = 0;
  let onQuiet: (() => void) | undefined;
  let cancelPoll = () => {};
  let cancelWake: (() => void) | undefined;

  const pending = (work: Promise<void>) => {
    storing++;
    void work.finally(() => {
      storing--;
      checkQuiet();
    });
  };
  const checkQuiet = () => {
    if (running.size === 0 && storing === 0 && underWay === 0) onQuiet?.();
  };

  const claims = createClaiming({
    ...options,
    names,
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

  const claimSoon = () => {
    if (stopping || names.length === 0 || outbox?.full) return;
    if (underWay > 0) return claimBeside();
    const limit = reserved === undefined ? claimLimit(capacity, running.size + asked) : 1;
    announcing.set(!more && limit > 0 && !runsAlone);
    if (!more || runsAlone) return;
    const tooEarlyMs = pace.waitMs();
    if (tooEarlyMs > 0) return wakeIn(tooEarlyMs);
    if (reserved !== undefined && unsettled.size > 0) return;
    if (limit > 0) void claim(limit);
  };

  // The store would wait for us else, while we read one answer and run what it brought. A claim of a
  // few tasks wouldn't be worth its transaction, so this is for pods that are at least half empty.
  const heldMost = capacityOf(capacity) - claimLimit(capacity, 0);
  const claimBeside = () => {
    if (!backlog || underWay > 1 || running.size + asked > heldMost) return;
    if (reserved !== undefined || pace.waitMs() > 0) return;
    void claim(claimLimit(capacity, 0));
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
    try {
      // A pod that is taken for dead can lose a task again as soon as it has claimed it.
      const held = [...unsettled].map((run) => run.claim.taskId).concat(outbox?.leftOver ?? []);
      const claimed = await claims.claim(limit, alone, held);
      underWay--;
      pace.succeeded();
      const { length } = claimed.claims;
      backlog = alone === undefined && length === limit;
      onEvent({ type: "claimed", tasks: length, tookMs: clock.monotonic() - startedMs });
      runsAlone = alone !== undefined && length > 0;
      reserved ??= claimed.reserved;
      if (claimed.nextDueMs === 0) more = true;
      else if (claimed.nextDueMs !== undefined && claimed.nextDueMs < pollMs) {
        wakeIn(claimed.nextDueMs);
      }
      if (length === limit || alone !== undefined || reserved !== undefined) more = true;
      else if (length === 0) pace.foundNothing();
      // The next claim goes out before these run, so that the store works while they do.
      const begun = claimed.claims.filter(isNewest).map(hold);
      asked -= limit;
      claimSoon();
      for (const run of begun) {
        if (stopping) end(run, { type: "interrupted" });
        else void runHandler(run, runParts).then((ending) => end(run, ending));
      }
    } catch (error) {
      underWay--;
      asked -= limit;
      backlog = false;
      more = true;
      const code = error instanceof FlotillaError ? error.code : "internal";
      onEvent({ type: "claim_failed", code, waitMs: pace.failed() });
      log.warn({ pod: podId, code, error: messageOf(error) }, "a claim failed; trying again");
      claimSoon();
    }
    checkQuiet();
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
    end(other, endingOf(other, undefined));
    return true;
  };

  const hold = (claimed: Claim): Running => {
    const run = startedRun(claimed, handlers.get(claimed.name)!, clock.monotonic());
    running.set(claimed.taskId, run);
    unsettled.add(run);
    deadlines.watch(run.actAtMs);
    return run;
  };

  /** Takes the ending of an attempt, once, and stores it. */
  const end = (run: Running, ending: Ending): void => {
    if (run.ended) return;
    run.ended = true;
    if (ending.type === "returned") progress.forget(run);
    // The task may have come back to this pod under a newer token, as a run of its own.
    if (running.get(run.claim.taskId) === run) running.delete(run.claim.taskId);
    if (run.claim.deaths >= aloneAfterDeaths) runsAlone = false;
    pending(store(run, ending));
    claimSoon();
  };

  const store = async (run: Running, ending: Ending): Promise<void> => {
    try {
      if (ending.type !== "returned") await progress.leave(run);
      const conclusion = await conclude(run, ending);
      progress.concluded(run, conclusion);
      report(run, conclusion);
    } catch (error) {
      if (run.span) endRunSpan(run.span, "unknown", null);
      const fields = { ...taskFields(run, podId), error: messageOf(error) };
      const left = outbox ? "kept for the next pod on this machine" : "left to recovery";
      log.error(fields, `how an attempt ended couldn't be stored; it is ${left}`);
    } finally {
      unsettled.delete(run);
      if (reserved !== undefined) claimSoon();
    }
  };

  const report = (run: Running, { finish, finished }: Conclusion) => {
    const { claim: task, startedMs, span } = run;
    const outcome = finished.type === "lost" ? "lost" : outcomeOf(finish);
    onEvent({ type: "ended", name: task.name, outcome, tookMs: clock.monotonic() - startedMs });
    if (span) endRunSpan(span, outcome, finish.error);
    if (outcome === "completed") return;
    // It is there to be claimed again, now or when it is due.
    if (finish.status === "pending") wake();
    const fields = { ...taskFields(run, podId), outcome };
    if (outcome === "lost") log.warn(fields, "another pod has the task now; its result counts");
    else if (finish.error === null) log.info(fields, "an attempt ended");
    else {
      const { code, message } = JSON.parse(finish.error) as TaskError;
      log.warn({ ...fields, code, error: message }, "an attempt failed");
    }
  };

  const deadlines = createDeadlines(
    clock,
    () => running.values(),
    (run) => {
      if (run.stopped === undefined) interrupt(run, "timeout");
      // It was told to stop and didn't: it is left to itself, and can store nothing any more.
      else end(run, endingOf(run, undefined));
    },
  );

  const interrupt = (run: Running, reason: StopReason) => {
    stopRun(run, reason);
    run.actAtMs = clock.monotonic() + (reason === "claim_lost" ? 0 : graceMs);
    deadlines.watch(run.actAtMs);
  };

  const poll = () => {
    cancelPoll = clock.after(pollMs * (0.75 + fraction(random) / 2), () => {
      wake();
      void checkHeld().finally(() => (stopping ? undefined : poll()));
    });
  };

  /** Asks what became of what is held. Short tasks are gone before it asks. */
  const checkHeld = async (): Promise<void> => {
    const since = clock.monotonic() - pollMs / 2;
    const runs = [...running.values()].filter((run) => !run.stopped && run.startedMs <= since);
    const meant = reserved;
    try {
      const news = await lookAtHeld(database, {
        runs,
        podId,
        ...(meant !== undefined && { reserved: meant }),
      });
      for (const { run, reason } of news.stops) interrupt(run, reason);
      // Nothing is worth draining for that was cancelled, or that another pod runs by now.
      if (meant !== undefined && meant === reserved && !news.stillMeant) {
        reserved = undefined;
        wake();
      }
    } catch (error) {
      log.debug({ pod: podId, error: messageOf(error) }, "looking at held tasks failed");
    }
  };

  // What this pod commits itself it knows of, and its claims would only find nothing.
  const unsubscribe = database.subscribe((whose) => {
    if (whose !== "own") wake();
  });
  poll();
  claimSoon();

  return {
    wake,
    get running() {
      return running.size;
    },
    get state() {
      if (stopping) return "stopping";
      if (outbox?.full) return "outbox full";
      if (pace.failing) return "waiting for the store";
      if (runsAlone) return "alone";
      if (reserved !== undefined) return "draining for one";
      if (claimLimit(capacity, running.size) === 0) return "full";
      return underWay > 0 ? "claiming" : "idle";
    },
    async stop({ waitMs }) {
      stopping = true;
      unsubscribe();
      announcing.stop();
      cancelPoll();
      cancelWake?.();
      const quiet = () =>
        new Promise<void>((resolve) => {
          onQuiet = resolve;
          checkQuiet();
        });
      await within(clock, waitMs, quiet());
      for (const run of running.values()) interrupt(run, "shutdown");
      await within(clock, graceMs * 2, quiet());
      await outbox?.settle();
      deadlines.stop();
      progress.stop();
      givingUp.abort();
    },
  };
}

function outcomeOf({ status, counted, snoozed }: Finish): Outcome {
  if (status !== "pending") return status;
  if (snoozed) return "snoozed";
  return counted === 1 ? "retry" : "released";
}

async function within(clock: Clock, limitMs: number, wait: Promise<void>): Promise<void> {
  let cancel = () => {};
  const limit = new Promise<void>((resolve) => {
    cancel = clock.after(limitMs, resolve);
  });
  await Promise.race([wait, limit]);
  cancel();
}
