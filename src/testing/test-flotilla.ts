import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import type { Json } from "../base/json.ts";
import { silentLogger } from "../base/log.ts";
import { checkChoice, checkNumber } from "../base/options.ts";
import { seededRandom } from "../base/random.ts";
import { type Bulks, createBulks } from "../bulk/bulks.ts";
import { type ChangesReader, createChanges } from "../changes/changes.ts";
import { setRecording } from "../changes/recording.ts";
import { createDeadLetters, type DeadLetters } from "../dead-letters/dead-letters.ts";
import { createRuns, type Runs } from "../flows/runs.ts";
import { type Config, resolveConfig } from "../runtime/config.ts";
import type { Usable } from "../runtime/handlers.ts";
import { createSchedules, type Schedules } from "../schedules/schedules.ts";
import type { Sessions } from "../sessions/sessions.ts";
import type { EnqueueOptions } from "../tasks/enqueue/options.ts";
import { resultOf } from "../tasks/inspect/wait-for.ts";
import type { Task } from "../tasks/rows.ts";
import type { InputOf, ResultOf } from "../tasks/task.ts";
import {
  createTasks,
  type EnqueuedTask,
  type TaskRef,
  type TaskEvent,
  type Tasks,
  type TaskShortcuts,
  taskShortcuts,
} from "../tasks/tasks.ts";
import { createThrottlesClient, type ThrottlesClient } from "../throttles/shares/admin.ts";
import {
  createTimeTravel,
  movableClock,
  pause,
  realTimeLimit,
  eventLoopTurn,
  watchedClock,
} from "./clock.ts";
import { type CrashPoint, crashPoints } from "./crash.ts";
import { createTestSessions, type TestSessionsParts } from "./sessions.ts";
import { testStore } from "./store.ts";
import { startTestPod, type TestPod } from "./test-pod.ts";
import type { TaskContract } from "../tasks/model.ts";

export type TestOptions = Omit<Config, "store" | "durability" | "migrate" | "server"> & {
  /** How many pods are started. Default 1. */
  pods?: number;
  /** The start time of the clock, in milliseconds since 1970. Default: the start of 2026. */
  startMs?: number;
  /** How much real time `run`, `result` and the like wait for a handler. Default 5,000. */
  realLimitMs?: number;
};

/** A crash that `crashAfter` has planned. */
export type PlannedCrash = {
  /** The pod that crashed; undefined while none has. */
  readonly pod: TestPod | undefined;
};

/** `retried`: an attempt has failed and another follows. `snoozed`: the handler has thrown `snooze`. */
export type ReachedState = "claimed" | "retried" | "snoozed" | "completed" | "failed" | "cancelled";

/**
 * A whole Flotilla in memory, on a clock that only the test moves. It can be passed to code that expects
 * what `connect` returns; its `waitFor` is `result`.
 */
export type TestFlotilla = TaskShortcuts & {
  readonly tasks: Tasks;
  readonly runs: Runs;
  readonly schedules: Schedules;
  readonly deadLetters: DeadLetters;
  readonly bulk: Bulks;
  /** Needs `changes` among the options. */
  readonly changes: ChangesReader;
  readonly throttles: ThrottlesClient;
  /**
   * Waiting for a result or an event moves the clock. A request to a pod that crashes is sent to another
   * one with the same id, and loops over events continue there.
   */
  readonly sessions: Sessions;
  /** Enqueues a task, lets a pod run it, and returns the result. Moves the clock over waits and retries. */
  run<T extends TaskContract>(
    task: T,
    input: InputOf<T>,
    options?: EnqueueOptions,
  ): Promise<ResultOf<T>>;
  /** The result of a task, moving the clock until there is one. Rejects if it fails or is cancelled. */
  result<T extends TaskContract>(task: EnqueuedTask<T>): Promise<ResultOf<T>>;
  result(taskId: string): Promise<Json>;
  /** The task once it has ended, with any status, moving the clock until then. */
  settled(task: TaskRef | string): Promise<Task>;
  /**
   * The task as it is now, once it is or was in that state, moving the clock until then. Earlier states
   * count: a completed task was claimed.
   */
  reached(task: TaskRef | string, state: ReachedState): Promise<Task>;
  /** Moves the clock until a condition holds, for example that a redrive is done. */
  until(holds: () => boolean | Promise<boolean>): Promise<void>;
  /** Moves the clock, firing timers in order and letting everything settle between them. */
  advance(durationMs: number): Promise<void>;
  /** The test's clock, for handlers that take one. */
  readonly clock: Clock;
  readonly pods: readonly TestPod[];
  /** Starts another pod, by default with the same handlers. */
  startPod(options?: { use?: readonly Usable[] }): Promise<TestPod>;
  /** Ends a pod like a power cut: from now on it does nothing. */
  crash(pod: TestPod): void;
  /**
   * Makes the next pod that reaches this point of a task, a run or an answer crash. With `times`, the pod
   * that reaches it for that time.
   */
  crashAfter(point: CrashPoint, options?: { times?: number }): PlannedCrash;
  /** Stops everything; `await using` calls it. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

const year2026Ms = 1_767_225_600_000;

/** Starts a Flotilla for a test: `await using t = await testFlotilla({ use: [handler] })`. */
export async function testFlotilla(options: TestOptions = {}): Promise<TestFlotilla> {
  const { pods: podsAtStart = 1, startMs = year2026Ms, realLimitMs = 5_000, ...config } = options;
  checkNumber("pods", podsAtStart, { min: 0, max: 100 });
  const settings = resolveConfig(config);
  const clock = movableClock(startMs);
  const store = await testStore(clock);
  const random = seededRandom(1);
  const ids = uuidv7(clock, random);
  const log = settings.log ?? silentLogger;
  const parts = {
    database: store,
    clock,
    random,
    ids,
    maxPayloadBytes: settings.maxPayloadBytes,
  };
  if (settings.changes) {
    await setRecording(settings.changes, { ...parts, migrate: "auto", log });
  }
  const { close: closeDeadLetters, inGroup, ...deadLetters } = createDeadLetters(parts);
  const { close: closeTasks, ...tasks } = createTasks({ ...parts, inGroup });
  const ownClock = watchedClock(clock);
  // After this time all pods know that a crashed pod is dead.
  const settleMs = settings.deadAfterMs * 2 + settings.heartbeatMs;
  const timeTravel = createTimeTravel({ store, clock, settleMs, ownMs: ownClock.nextMs });
  const pods: TestPod[] = [];
  const crashes: Planned[] = [];

  const reach = (point: CrashPoint, pod: TestPod): void => {
    for (const planned of crashes) {
      if (planned.point !== point || planned.pod || --planned.times > 0) continue;
      planned.pod = pod;
      pod.crash();
      return;
    }
  };

  const startPod: TestFlotilla["startPod"] = async ({ use = settings.use } = {}) => {
    const podSettings = use === settings.use ? settings : resolveConfig({ ...config, use });
    const pod = await startTestPod(podSettings, { store, clock, random, ids, log, reach });
    pods.push(pod);
    await eventLoopTurn();
    return pod;
  };

  const advance = async (durationMs: number): Promise<void> => {
    checkNumber("advance", durationMs, { min: 0, max: Number.MAX_SAFE_INTEGER, whole: false });
    const untilMs = clock.monotonic() + durationMs;
    timeTravel.markActive();
    await eventLoopTurn();
    while (await timeTravel.step(untilMs));
    clock.moveTo(untilMs);
  };

  /** Moves the clock until `find` returns a value, but not while a handler runs, which may await real I/O. */
  const moveUntil = async <Found>(
    find: () => Promise<Found | undefined>,
    late: () => Promise<FlotillaError>,
  ): Promise<Found> => {
    const isLate = realTimeLimit(realLimitMs);
    timeTravel.markActive();
    for (;;) {
      await eventLoopTurn();
      const found = await find();
      if (found !== undefined) return found;
      if (!pods.some((pod) => pod.alive)) {
        throw new FlotillaError("conflict", "no pod is alive: call startPod() first");
      }
      if (isLate()) throw await late();
      // Moving the clock would time the handler out. Timers that are due now don't move it, and park a
      // handler that waits.
      if (pods.some((pod) => pod.alive && pod.running > 0)) {
        if (!clock.fireNext(clock.monotonic())) await pause();
      } else await timeTravel.step(Infinity);
    }
  };

  const moveFor: TestSessionsParts["moveFor"] = async (promise, { isHeld, maxMs, late }) => {
    const isLate = realTimeLimit(realLimitMs);
    const untilMs = clock.monotonic() + maxMs;
    let isSettled = false;
    const settle = () => void (isSettled = true);
    promise.then(settle, settle);
    timeTravel.markActive();
    for (;;) {
      await eventLoopTurn();
      if (isSettled) return promise;
      if (!pods.some((pod) => pod.alive)) {
        throw new FlotillaError("conflict", "no pod is alive: call startPod() first");
      }
      if (isLate()) throw late();
      // Timers that are due now don't move the clock, and deliver messages between pods.
      if (isHeld() || clock.monotonic() >= untilMs) {
        if (!clock.fireNext(clock.monotonic())) await pause();
      } else await timeTravel.step(untilMs);
    }
  };

  const getTask = async (taskId: string): Promise<Task> => {
    const task = await tasks.get(taskId);
    if (task) return task;
    throw new FlotillaError("not_found", `there is no task ${taskId}`);
  };

  const settled = async (enqueued: TaskRef | string): Promise<Task> => {
    const taskId = idOf(enqueued);
    return moveUntil(
      async () => {
        const task = await getTask(taskId);
        return hasEnded(task) ? task : undefined;
      },
      async () => tooLong(await getTask(taskId)),
    );
  };

  const reached = async (enqueued: TaskRef | string, state: ReachedState): Promise<Task> => {
    const taskId = idOf(enqueued);
    return moveUntil(
      async () => {
        const task = await getTask(taskId);
        if (hasReached(task, await tasks.events(taskId), state)) return task;
        if (!hasEnded(task)) return undefined;
        throw new FlotillaError(
          "conflict",
          `task ${taskId} is ${task.status} and was never ${state}`,
        );
      },
      async () => tooLong(await getTask(taskId)),
    );
  };

  const until = async (holds: () => boolean | Promise<boolean>): Promise<void> => {
    await moveUntil(
      async () => (await holds()) || undefined,
      async () => {
        const at = new Date(clock.now()).toISOString();
        const message = `the condition of until() doesn't hold after ${realLimitMs} ms of real time, at ${at} of the test's time`;
        return new FlotillaError("timeout", message);
      },
    );
  };

  const tooLong = (task: Task) =>
    new FlotillaError(
      "timeout",
      task.status === "claimed"
        ? `the handler of "${task.name}" still runs after ${realLimitMs} ms of real time: if it waits for the clock, use enqueue() and advance()`
        : `task ${task.taskId} (${task.name}) still waits at ${new Date(clock.now()).toISOString()} of the test's time: does a pod have its handler?`,
    );

  const result = async (enqueued: TaskRef | string): Promise<any> =>
    resultOf(await settled(enqueued));

  const close = async (): Promise<void> => {
    let open = pods.length;
    for (const pod of pods) void pod.stop().finally(() => open--);
    // Stopping waits for handlers by the clock, so the clock is moved until all pods have stopped.
    const lateMs = clock.monotonic() + settings.shutdownMs + settings.graceMs * 2 + 60_000;
    do await eventLoopTurn();
    while (open > 0 && clock.fireNext(lateMs));
    closeTasks();
    closeDeadLetters();
    await store.close();
  };

  for (let started = 0; started < podsAtStart; started++) await startPod();

  return {
    ...taskShortcuts(tasks),
    waitFor: result,
    tasks: { ...tasks, waitFor: result },
    schedules: createSchedules(parts),
    deadLetters,
    bulk: createBulks(parts),
    changes: createChanges(parts),
    runs: createRuns({ ...tasks, waitFor: result }, parts),
    throttles: createThrottlesClient(parts),
    sessions: createTestSessions({ pods, ids, moveFor }),
    run: async (task, input, enqueueOptions) =>
      result(await tasks.enqueue(task, input, enqueueOptions)),
    result,
    settled,
    reached,
    until,
    advance,
    clock: ownClock,
    pods,
    startPod,
    crash: (pod) => pod.crash(),
    crashAfter(point, { times = 1 } = {}) {
      checkChoice("crashAfter: point", point, crashPoints);
      checkNumber("times", times, { min: 1, max: 1_000_000 });
      const planned: Planned = { point, times, pod: undefined };
      crashes.push(planned);
      return planned;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}

type Planned = { readonly point: CrashPoint; times: number; pod: TestPod | undefined };

function idOf(task: TaskRef | string): string {
  return typeof task === "string" ? task : task.taskId;
}

function hasEnded({ status }: Task): boolean {
  return status !== "pending" && status !== "claimed";
}

/** Whether a task is or was in a state, from its row and its events. */
function hasReached(task: Task, events: readonly TaskEvent[], state: ReachedState): boolean {
  const happened = (type: string) => events.some((event) => event.type === type);
  switch (state) {
    case "claimed":
      return task.claimToken > 0;
    case "retried":
      return happened("retry");
    case "snoozed":
      return task.snoozes > 0;
    case "completed":
    case "failed":
    case "cancelled":
      // The earlier end of a task that was started over is in its events.
      return task.status === state || happened(state);
  }
}
