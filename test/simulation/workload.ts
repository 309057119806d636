/**
 * What the pods run, and the clients that ask for it. A handler's result names its token, so that
 * it can be told whose result was stored; a client notes how each of its requests ended.
 */
import { abort, hasCode } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { createTasks, type Tasks } from "../../src/queue/client.ts";
import type { EnqueueOptions } from "../../src/queue/enqueue.ts";
import { task, type TaskContext, type TaskHandler } from "../../src/queue/task.ts";
import type { Checker } from "./checker.ts";
import { concurrencyKeys, tenants } from "./gates.ts";
import { createLane, laneClock } from "./lane.ts";
import type { Network } from "./link.ts";
import type { SimPod } from "./pod.ts";
import { startOfTimeMs, type World } from "./world.ts";

export type Payload = {
  /** The request that made the task. */
  readonly op: number;
  readonly workMs: number;
  /** How often it fails, or kills its pod, before it works. */
  readonly times: number;
  /** The tasks that it waits for. */
  readonly after?: readonly string[];
};

type Kind = {
  readonly attempts: number;
  readonly timeoutMs: number;
  readonly run: (
    context: TaskContext<Payload>,
    pod: SimPod,
    priorRuns: number,
    world: World,
  ) => Promise<void>;
};

const work = (pod: SimPod, durationMs: number) =>
  new Promise<void>((resolve) => void pod.clock.after(durationMs, resolve));

const kinds: Readonly<Record<string, Kind>> = {
  quick: {
    attempts: 3,
    timeoutMs: 60_000,
    run: ({ input }, pod) => work(pod, input.workMs % 60),
  },
  slow: {
    attempts: 3,
    timeoutMs: 60_000,
    async run({ input, progress, token }, pod) {
      for (let done = 0; done < 4; done++) {
        await work(pod, 1_200 + (input.workMs % 1_500));
        progress({ done, token });
      }
    },
  },
  flaky: {
    attempts: 3,
    timeoutMs: 60_000,
    async run({ input, attempt }, pod) {
      await work(pod, input.workMs % 900);
      if (attempt <= input.times) throw new Error(`failure ${attempt}`);
    },
  },
  hopeless: {
    attempts: 3,
    timeoutMs: 60_000,
    async run({ input }, pod) {
      await work(pod, input.workMs % 100);
      throw abort("nothing helps");
    },
  },
  stuck: { attempts: 2, timeoutMs: 3_000, run: () => new Promise(() => {}) },
  polite: {
    attempts: 3,
    timeoutMs: 60_000,
    run: ({ input, signal }, pod) =>
      new Promise((resolve, reject) => {
        signal.addEventListener("abort", () => reject(signal.reason as Error));
        pod.clock.after(2_000 + input.workMs, resolve);
      }),
  },
  poison: {
    attempts: 3,
    timeoutMs: 60_000,
    async run({ input }, pod, priorRuns) {
      await work(pod, input.workMs % 400);
      if (priorRuns < input.times) pod.crash("poisoned");
      await work(pod, 50);
    },
  },
  broken: {
    attempts: 1,
    timeoutMs: 60_000,
    async run({ input }, pod, _, { broken }) {
      await work(pod, input.workMs % 500);
      if (broken) throw new Error(`no such user ${input.op}`);
    },
  },
};

export const taskNames = Object.keys(kinds);

export const attemptsOf = (name: string) => kinds[name]!.attempts;

export function handlersFor(world: World, checker: Checker, pod: SimPod): TaskHandler[] {
  return pod.names.map((name) => {
    const { attempts, timeoutMs, run } = kinds[name]!;
    const backoff = { baseMs: 300, factor: 2, maxMs: 2_000 };
    return task<Payload, Payload, unknown>(
      name,
      { attempts, timeoutMs, backoff },
      async (context) => {
        const { taskId, token, signal } = context;
        const priorRuns = checker.runs.filter((each) => each.taskId === taskId).length;
        const begun = checker.started({ taskId, name, token, podId: pod.podId });
        world.scheduler.note(`${pod.podId} runs ${name} ${taskId.slice(-6)}@${token}`);
        signal.addEventListener("abort", () => {
          begun.active = false;
        });
        try {
          await run(context, pod, priorRuns, world);
          const result = { op: context.input.op, token, podId: pod.podId };
          begun.returned = JSON.stringify(result);
          return result;
        } finally {
          begun.active = false;
        }
      },
    );
  });
}

/** A request of a client, and what the client was told. */
export type Request = {
  readonly op: number;
  readonly name: string;
  readonly key: string | undefined;
  outcome:
    | { readonly type: "open" }
    | { readonly type: "ok"; readonly taskId: string; readonly created: boolean }
    | { readonly type: "failed"; readonly code: string }
    | { readonly type: "unknown" };
};

export type Clients = { readonly history: readonly Request[]; readonly open: number };

export type ClientsOptions = { clients: number; untilMs: number; gapMs: number };

/** Clients that enqueue, cancel and retry until a moment. */
export function startClients(
  world: World,
  network: Network,
  { clients, untilMs, gapMs }: ClientsOptions,
): Clients {
  const { scheduler } = world;
  const history: Request[] = [];
  const acked: string[] = [];
  let open = 0;
  let op = 0;

  const asked = (work: Promise<unknown>): void => {
    open++;
    void work
      .catch((error: unknown) => {
        if (!hasCode(error, "conflict", "not_found", "unknown_outcome", "store_busy")) throw error;
      })
      .finally(() => open--);
  };

  const enqueue = async (tasks: Tasks): Promise<void> => {
    const name = world.pick(likely);
    const key = world.chance(0.3) ? `k${world.between(1, 3)}` : undefined;
    const request: Request = { op: ++op, name, key, outcome: { type: "open" } };
    history.push(request);
    const times = name === "poison" && world.chance(0.3) ? 100 : world.between(0, 3);
    // The newest are likely to be open yet, and to end at about the same time.
    const newest = acked.slice(-5);
    const waits = newest.length > 1 && world.chance(0.3);
    const after = waits ? [...new Set([world.pick(newest), world.pick(newest)])] : [];
    const payload: Payload = { op: request.op, workMs: world.between(0, 3_000), times, after };
    const options: EnqueueOptions = {
      ...(key !== undefined && { key }),
      ...(world.chance(0.3) && { delayMs: world.between(1, 6_000) }),
      ...(world.chance(0.3) && { priority: world.between(-2, 2) }),
      ...(world.chance(0.15) && { attempts: world.between(1, 4) }),
      ...(world.chance(0.25) && { concurrencyKey: world.pick(concurrencyKeys) }),
      // The same key of another tenant is another task's.
      ...(key === undefined && world.chance(0.2) && { tenant: world.pick(tenants) }),
      ...(waits && { after, afterFailed: world.pick(["fail", "run"] as const) }),
    };
    try {
      const { taskId, created } = await tasks.enqueue(name, payload, options);
      request.outcome = { type: "ok", taskId, created };
      acked.push(taskId);
    } catch (error) {
      request.outcome = hasCode(error, "unknown_outcome")
        ? { type: "unknown" }
        : { type: "failed", code: hasCode(error, "store_busy") ? error.code : String(error) };
    }
    scheduler.note(`client #${request.op} ${name} ${request.outcome.type}`);
  };

  const act = (tasks: Tasks): void => {
    if (acked.length > 3 && world.chance(0.2)) return asked(tasks.cancel(world.pick(acked)));
    if (acked.length > 3 && world.chance(0.1)) return asked(tasks.retry(world.pick(acked)));
    asked(enqueue(tasks));
  };

  for (let made = 0; made < clients; made++) {
    const lane = createLane(scheduler);
    const wallMs = () => startOfTimeMs + scheduler.nowMs;
    const clock = laneClock(scheduler, lane, { wallMs, startMs: 0 });
    const random = world.fork();
    const database = network.connect({ who: `c${made + 1}`, lane });
    const tasks = createTasks({ database, clock, random, ids: uuidv7(clock, random) });
    const loop = () => {
      if (scheduler.nowMs >= untilMs) return;
      act(tasks);
      scheduler.after(world.between(gapMs / 4, gapMs * 2), loop);
    };
    scheduler.after(world.between(0, gapMs), loop);
  }
  return {
    history,
    get open() {
      return open;
    },
  };
}

// Mostly quick ones, so that there is always something to claim, and few that kill their pod.
const shares = {
  quick: 4,
  slow: 3,
  flaky: 2,
  polite: 2,
  hopeless: 1,
  stuck: 1,
  poison: 1,
  broken: 1,
};
const likely = Object.entries(shares).flatMap(([name, share]) => Array<string>(share).fill(name));
