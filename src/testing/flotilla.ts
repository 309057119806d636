import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { uuidv7 } from "../base/ids.ts";
import { silentLogger } from "../base/log.ts";
import { checkNumber } from "../base/options.ts";
import { seededRandom } from "../base/random.ts";
import { resultOf } from "../queue/wait.ts";
import { createTasks, type EnqueuedTask, type Tasks } from "../queue/client.ts";
import type { EnqueueOptions } from "../queue/enqueue.ts";
import type { Task } from "../queue/row.ts";
import type { InputOf, ResultOf, TaskContract, TaskHandler } from "../queue/task.ts";
import { type Config, resolveConfig } from "../runtime/config.ts";
import { createSchedules, type Schedules } from "../schedules/client.ts";
import { movableClock } from "./clock.ts";
import type { CrashPoint } from "./crash.ts";
import { startTestPod, type TestPod } from "./pod.ts";
import { testStore } from "./store.ts";
import { pause, realLimit, turn } from "./turns.ts";

export type TestOptions = Omit<Config, "store" | "durability" | "migrate" | "server"> & {
  /** How many pods are there from the start. Default 1. */
  pods?: number;
  /** What the clock says at first, in milliseconds since 1970. Default: the start of 2026. */
  startMs?: number;
  /** How much real time `run`, `waitFor` and `settled` give a handler. Default 5,000. */
  realLimitMs?: number;
};

/** A crash that was asked for. */
export type PlannedCrash = {
  /** The pod that crashed; undefined while none has. */
  readonly pod: TestPod | undefined;
};

type Asking = Pick<Tasks, "enqueueMany" | "get" | "list" | "stats" | "events" | "cancel" | "retry">;

/** A whole Flotilla in memory, on a clock that only the test moves. */
export type TestFlotilla = Asking & {
  enqueue: Tasks["enqueue"];
  readonly schedules: Schedules;
  /** Enqueues, lets a pod run it, and gives the result. The clock is moved over waits and retries. */
  run<T extends TaskContract>(
    task: T,
    input: InputOf<T>,
    options?: EnqueueOptions,
  ): Promise<ResultOf<T>>;
  /** The result of a task, moving the clock until there is one. */
  waitFor<T extends TaskContract>(task: EnqueuedTask<T>): Promise<ResultOf<T>>;
  /** The task once it has ended, moving the clock until then. */
  settled(taskId: string): Promise<Task>;
  /** Moves the clock, firing timers in order and letting everything settle between them. */
  advance(durationMs: number): Promise<void>;
  /** For handlers that wait by a clock which they are given. */
  readonly clock: Clock;
  readonly pods: readonly TestPod[];
  /** Starts one more pod, with the same handlers unless it is given others. */
  startPod(options?: { use?: readonly TaskHandler[] }): Promise<TestPod>;
  /** Ends a pod as a power cut would: it does nothing any more. */
  crash(pod: TestPod): void;
  /** Makes the next pod that comes to this point crash there. */
  crashAt(point: CrashPoint): PlannedCrash;
  /** Stops everything; `await using` does it by itself. */
  close(): Promise<void>;
  [Symbol.asyncDispose](): Promise<void>;
};

const year2026Ms = 1_767_225_600_000;

/** `await using t = await testFlotilla({ use: [handler] })` */
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
  const tasks = createTasks(parts);
  const pods: TestPod[] = [];
  const crashes: { point: CrashPoint; pod: TestPod | undefined }[] = [];

  const reach = (point: CrashPoint, pod: TestPod): void => {
    const planned = crashes.find((each) => each.point === point && each.pod === undefined);
    if (!planned) return;
    planned.pod = pod;
    pod.crash();
  };

  const startPod: TestFlotilla["startPod"] = async ({ use = settings.use } = {}) => {
    const podSettings = use === settings.use ? settings : resolveConfig({ ...config, use });
    const pod = await startTestPod(podSettings, { store, clock, random, ids, log, reach });
    pods.push(pod);
    await turn();
    return pod;
  };

  const advance = async (durationMs: number): Promise<void> => {
    checkNumber("advance", durationMs, { min: 0, max: Number.MAX_SAFE_INTEGER, whole: false });
    const untilMs = clock.monotonic() + durationMs;
    await turn();
    while (clock.fireNext(untilMs)) await turn();
    clock.moveTo(untilMs);
  };

  const settled = async (taskId: string): Promise<Task> => {
    const late = realLimit(realLimitMs);
    for (;;) {
      await turn();
      const task = await tasks.get(taskId);
      if (!task) throw new FlotillaError("not_found", `there is no task ${taskId}`);
      if (task.status !== "pending" && task.status !== "claimed") return task;
      if (!pods.some((pod) => pod.alive)) {
        throw new FlotillaError("conflict", "no pod is alive: call startPod() first");
      }
      if (late()) throw tooLong(task);
      const holder = task.status === "claimed" ? task.claimedBy : undefined;
      // A handler that runs may wait for something real, and moving the clock would time it out.
      if (pods.some((pod) => pod.podId === holder && pod.alive)) await pause();
      else clock.fireNext(Infinity);
    }
  };

  const tooLong = (task: Task) =>
    new FlotillaError(
      "timeout",
      task.status === "claimed"
        ? `the handler of "${task.name}" still runs after ${realLimitMs} ms of real time: if it waits for the clock, use enqueue() and advance()`
        : `task ${task.taskId} (${task.name}) still waits at ${new Date(clock.now()).toISOString()} of the test's time: does a pod have its handler?`,
    );

  const waitFor = async (taskId: string): Promise<any> => resultOf(await settled(taskId));

  const close = async (): Promise<void> => {
    let open = pods.length;
    for (const pod of pods) void pod.stop().finally(() => open--);
    // Stopping waits for handlers by the clock, so it is moved until all have been told to stop.
    const lateMs = clock.monotonic() + settings.shutdownMs + settings.graceMs * 2 + 60_000;
    do await turn();
    while (open > 0 && clock.fireNext(lateMs));
    tasks.close();
    await store.close();
  };

  for (let started = 0; started < podsAtStart; started++) await startPod();

  const { enqueue, enqueueMany, get, list, stats, events, cancel, retry } = tasks;
  return {
    enqueue,
    schedules: createSchedules(parts),
    enqueueMany,
    get,
    list,
    stats,
    events,
    cancel,
    retry,
    run: async (task, input, enqueueOptions) =>
      waitFor((await enqueue(task, input, enqueueOptions)).taskId),
    waitFor: ({ taskId }) => waitFor(taskId),
    settled,
    advance,
    clock,
    pods,
    startPod,
    crash: (pod) => pod.crash(),
    crashAt(point) {
      const planned: { point: CrashPoint; pod: TestPod | undefined } = { point, pod: undefined };
      crashes.push(planned);
      return planned;
    },
    close,
    [Symbol.asyncDispose]: close,
  };
}
