/**
 * What the pods run, and the clients that ask for it. A handler's result names its token, so that
 * it can be told whose result was stored; a client notes how each of its requests ended.
 */
import { abort, FlotillaError, hasCode, transientCodes } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import { createTasks, type Tasks } from "../../src/tasks/tasks.ts";
import type { EnqueueOptions } from "../../src/tasks/enqueue/options.ts";
import { task } from "../../src/tasks/task.ts";
import type { TaskContext, TaskHandler } from "../../src/tasks/model.ts";
import type { Checker } from "./checker.ts";
import { concurrencyKeys, tenants } from "./limits.ts";
import { createLane, laneClock } from "./lane.ts";
import type { Network } from "./link.ts";
import type { SimPod } from "./pod.ts";
import { refusedBehindCommits } from "./refusals.ts";
import { type Asked, createRequests, type Request, waysIn } from "./requests.ts";
import { likelySteps, runSteps, steppingNames } from "./stepping.ts";
import { throttleOf } from "./throttled.ts";
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
    checker: Checker,
  ) => Promise<void | Record<string, unknown>>;
};

const work = (pod: SimPod, durationMs: number) =>
  new Promise<void>((resolve) => void pod.clock.after(durationMs, resolve));

const plainKinds: Readonly<Record<string, Kind>> = {
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

const stepping = steppingNames.map((name): [string, Kind] => [
  name,
  {
    attempts: 3,
    timeoutMs: 60_000,
    run: (context, pod, _, world, { steps }) => runSteps(name, context, pod, world, steps),
  },
]);
const kinds: Readonly<Record<string, Kind>> = { ...plainKinds, ...Object.fromEntries(stepping) };

/** The names of tasks without steps. */
export const taskNames = Object.keys(plainKinds);

export const attemptsOf = (name: string) => kinds[name]!.attempts;

export function handlersFor(
  world: World,
  checker: Checker,
  pod: SimPod,
  { throttled }: { throttled: boolean },
): TaskHandler[] {
  return pod.names.map((name) => {
    const { attempts, timeoutMs, run } = kinds[name]!;
    const backoff = { baseMs: 300, factor: 2, maxMs: 2_000 };
    const throttle = throttled ? throttleOf(name) : undefined;
    return task<Payload, Payload, unknown>(
      name,
      { attempts, timeoutMs, backoff, ...(throttle && { throttle }) },
      async (context) => {
        const { taskId, token, signal } = context;
        const priorRuns = checker.runs.filter((each) => each.taskId === taskId).length;
        const begun = checker.started({ taskId, name, token, podId: pod.podId });
        if (throttle) world.count("throttle: passed the gate");
        world.scheduler.note(`${pod.podId} runs ${name} ${taskId.slice(-6)}@${token}`);
        signal.addEventListener("abort", () => {
          begun.active = false;
        });
        try {
          const steps = await run(context, pod, priorRuns, world, checker);
          const result = { op: context.input.op, token, podId: pod.podId, ...(steps && { steps }) };
          begun.returned = JSON.stringify(result);
          return result;
        } finally {
          begun.active = false;
        }
      },
    );
  });
}

export type Clients = { readonly history: readonly Request[]; readonly open: number };

export type ClientsOptions = {
  clients: number;
  untilMs: number;
  gapMs: number;
  /** Pods in whose processes the first client asks too, and gets no answer if they die meanwhile. */
  beside?: (() => readonly SimPod[]) | undefined;
  /** Many short tasks come at once, so that pods claim ahead of their slots. */
  crowds?: boolean;
  /** Many tasks have steps. */
  steps?: boolean;
};

/** How a client asks: over a connection of its own, or in the process of a pod. */
type Way = {
  readonly tasks: Tasks;
  /** The answer, unless the process dies. */
  heard<Answer>(answer: Promise<Answer>): Promise<Answer>;
};

/** Clients that enqueue, cancel and retry until a moment. */
export function startClients(
  world: World,
  network: Network,
  { clients, untilMs, gapMs, beside, crowds = false, steps = false }: ClientsOptions,
): Clients {
  const { scheduler } = world;
  const requests = createRequests(world);
  const likely = steps ? [...likelyPlain, ...likelySteps] : likelyPlain;
  const acked: string[] = [];
  let open = 0;
  let calls = 0;

  const asked = (work: Promise<unknown>): void => {
    open++;
    void work
      .catch((error: unknown) => {
        if (!hasCode(error, "conflict", "not_found", ...transientCodes)) throw error;
      })
      .finally(() => open--);
  };
  const settled = async (
    all: readonly Asked[],
    answer: Parameters<typeof requests.settle>[1],
  ): Promise<void> => {
    const made = all.map(({ request }) => request);
    await requests.settle(made, answer);
    for (const { outcome } of made) if (outcome.type === "ok") acked.push(outcome.taskId);
  };

  const plain = (name: string, whole?: number): Asked => {
    const request = requests.add(name, { whole });
    const payload: Payload = { op: request.op, workMs: world.between(0, 3_000), times: 1 };
    return { request, payload, options: {} };
  };

  /** A task without options, for which a pod in the same process may make its claim at once. */
  const enqueuePlain = (way: Way): Promise<void> => {
    const one = plain(world.pick(likely));
    return settled([one], way.heard(waysIn.one(way.tasks, one)));
  };

  const enqueueCrowd = (way: Way): Promise<void> => {
    const whole = ++calls;
    const all = Array.from({ length: crowdSize }, () => plain("quick", whole));
    world.count("request: crowd");
    return settled(all, way.heard(waysIn.many(way.tasks, all)));
  };

  const draw = (name: string, given: { key?: string | undefined; whole?: number }): Asked => {
    const request = requests.add(name, given);
    const { key } = request;
    const times = name === "poison" && world.chance(0.3) ? 100 : world.between(0, 3);
    // The newest are likely to be open yet, and to end at about the same time.
    const newest = acked.slice(-5);
    const waits = newest.length > 1 && world.chance(0.3);
    const after = waits ? [...new Set([world.pick(newest), world.pick(newest)])] : [];
    const payload: Payload = { op: request.op, workMs: world.between(0, 3_000), times, after };
    const options: EnqueueOptions = {
      ...(key !== undefined && { key }),
      ...(key !== undefined && world.chance(0.15) && { onDuplicate: "reject" }),
      ...(world.chance(0.3) && { delayMs: world.between(1, 6_000) }),
      ...(world.chance(0.3) && { priority: world.between(-2, 2) }),
      ...(world.chance(0.15) && { attempts: world.between(1, 4) }),
      ...(world.chance(0.25) && { concurrencyKey: world.pick(concurrencyKeys) }),
      // The same key of another tenant is another task's.
      ...(key === undefined && world.chance(0.2) && { tenant: world.pick(tenants) }),
      ...(waits && { after, afterFailed: world.pick(["fail", "run"] as const) }),
    };
    return { request, payload, options };
  };
  const someKey = (share: number) => (world.chance(share) ? `k${world.between(1, 3)}` : undefined);

  const enqueue = (way: Way, name = world.pick(likely), key = someKey(0.3)): Promise<void> => {
    const one = draw(name, { key });
    return settled([one], way.heard(waysIn.one(way.tasks, one)));
  };

  const enqueueMany = (way: Way): Promise<void> => {
    const name = world.pick(likely);
    const whole = ++calls;
    const keyed = world.chance(0.5);
    const all = Array.from({ length: world.between(2, 3) }, () =>
      draw(name, {
        whole,
        ...(keyed && { key: someKey(0.4) ?? `m${whole}/${world.between(1, 9)}` }),
      }),
    );
    world.count(`request: many${keyed ? ", with keys" : ""}`);
    // All of a call wait for the same.
    const { after } = all[0]!.payload as Payload;
    const alike = all.map((each) => ({ ...each, payload: { ...each.payload, after } }));
    return settled(alike, way.heard(waysIn.many(way.tasks, alike)));
  };

  const enqueueEach = (way: Way): Promise<void> => {
    const all = Array.from({ length: world.between(2, 4) }, () =>
      draw(world.pick(likely), { key: someKey(0.5) }),
    );
    world.count("request: each");
    return settled(all, way.heard(waysIn.each(way.tasks, all)));
  };

  /** Several at once, which go to the store together. Some have keys, and likely ones that are taken. */
  const burst = (way: Way): void => {
    world.count("request: burst");
    const taken = keysInUse();
    if (taken.length > 0) {
      const { name, key } = world.pick(taken);
      asked(enqueue(way, name, key));
    }
    for (let left = world.between(1, 3); left > 0; left--) asked(enqueue(way));
    if (world.chance(0.3)) asked(enqueueMany(way));
    if (world.chance(0.3)) asked(enqueueEach(way));
  };
  const keysInUse = () =>
    requests.history.filter(({ key, outcome }) => key !== undefined && outcome.type === "ok");

  const act = (way: Way): void => {
    const { tasks, heard } = way;
    if (acked.length > 3 && world.chance(0.2)) return asked(heard(tasks.cancel(world.pick(acked))));
    if (acked.length > 3 && world.chance(0.1)) return asked(heard(tasks.retry(world.pick(acked))));
    if (world.chance(0.15)) return burst(way);
    asked(enqueue(way));
  };

  const actBeside = (pod: SimPod): void =>
    pod.enter(() => {
      if (!pod.running || pod.stoppingMs !== undefined) return;
      world.count("request: in a pod's process");
      const way: Way = {
        tasks: pod.running.tasks,
        heard: (answer) => Promise.race([answer, pod.end.then(diedWithPod)]),
      };
      if (world.chance(0.3)) return act(way);
      for (let left = world.between(1, 4); left > 0; left--) asked(enqueuePlain(way));
    });

  for (let made = 0; made < clients; made++) {
    const lane = createLane(scheduler);
    const wallMs = () => startOfTimeMs + scheduler.nowMs;
    const clock = laneClock(scheduler, lane, { wallMs, startMs: 0 });
    const random = world.fork();
    const connected = network.connect({ who: `c${made + 1}`, lane });
    const database = refusedBehindCommits(world, connected, { untilMs });
    const tasks = createTasks({ database, clock, random, ids: uuidv7(clock, random) });
    const way: Way = { tasks, heard: (answer) => answer };
    const loop = () => {
      if (scheduler.nowMs >= untilMs) return;
      const pods = made === 0 ? (beside?.() ?? []) : [];
      if (pods.length > 0 && world.chance(0.8)) actBeside(world.pick(pods));
      else if (crowds && world.chance(0.5)) asked(enqueueCrowd(way));
      else act(way);
      scheduler.after(world.between(gapMs / 4, gapMs * 2), loop);
    };
    scheduler.after(world.between(0, gapMs), loop);
  }
  return {
    history: requests.history,
    get open() {
      return open;
    },
  };
}

const crowdSize = 16;

function diedWithPod(): never {
  throw new FlotillaError("unknown_outcome", "simulated: the process died");
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
const likelyPlain = Object.entries(shares).flatMap(([name, share]) =>
  Array<string>(share).fill(name),
);
