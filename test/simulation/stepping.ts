/**
 * Tasks with steps: one after the other, at the same time, within each other, in loops, at most once, with
 * waits for a time and for signals, and durable agents. And the people who send those signals: early, late,
 * and twice.
 */
import { FlotillaError, hasCode, transientCodes } from "../../src/base/errors.ts";
import { uuidv7 } from "../../src/base/ids.ts";
import type { StepContext, TaskSteps } from "../../src/steps/model.ts";
import { createTasks } from "../../src/tasks/tasks.ts";
import { type AskingScene, runAsking } from "./asking.ts";
import { createLane, laneClock } from "./lane.ts";
import type { Network } from "./link.ts";
import type { SimPod } from "./pod.ts";
import { signalWord, type StepLedger } from "./steps.ts";
import type { Payload } from "./workload.ts";
import { startOfTimeMs, type World } from "./world.ts";

export type SteppingContext = {
  readonly taskId: string;
  readonly token: number;
  readonly input: Payload;
  readonly step: TaskSteps;
};

type Body = (context: StepContext) => Promise<string>;

/** What a script works with. */
type Scene = AskingScene & {
  readonly step: TaskSteps;
  readonly input: Payload;
  doesOnce(key: string): (context: StepContext) => Promise<string>;
  look(key: string): string | undefined;
  /** Waits for a step, and judges what it returns. What is not within another goes into the result. */
  kept<Value>(key: string, returned: Promise<Value>): Promise<Value>;
};

type Script = (scene: Scene) => Promise<void>;

const scripts: Readonly<Record<string, Script>> = {
  async stepping({ step, does, kept }) {
    await kept("find", step("find", does("find")));
    await kept("find#2", step("find", does("find#2")));
    const pages = ["a", "b", "c"];
    const run = (page: string, context: StepContext) => does(`read[${page}]`)(context);
    const read = await step.forEach("read", pages, { key: (page) => page, atOnce: 2 }, run);
    for (const [at, page] of pages.entries())
      await kept(`read[${page}]`, Promise.resolve(read[at]!));
    const within: Body = async ({ step: inner }) => {
      const asked = kept("tool/ask", inner("ask", does("tool/ask")));
      const deep: Body = ({ step: deeper }) =>
        kept("tool/deep/er", deeper("er", does("tool/deep/er")));
      const both = [asked, kept("tool/deep", inner("deep", does("tool/deep", deep)))];
      return (await Promise.all(both)).join();
    };
    await kept("tool", step("tool", does("tool", within)));
    const last = step.loop("loop", 1, async (round, { step: inner, done }) => {
      const key = `loop@${round}/model`;
      const said = await kept(key, inner("model", does(key)));
      return round === 3 ? done(said) : round + 1;
    });
    await kept("loop", last);
  },

  async paying({ step, does, doesOnce, look, kept }) {
    await kept("cart", step("cart", does("cart")));
    const looked = { once: { look: () => look("charge") } };
    await kept("charge", step("charge", looked, doesOnce("charge")));
    await kept("ship", step("ship", { once: true }, doesOnce("ship")));
    await kept("thank", step("thank", does("thank")));
  },

  async waiting({ step, input, does, kept }) {
    await kept("note", step("note", does("note")));
    await step.sleep("rest", 100 + input.workMs);
    await Promise.all([
      kept("review", step.signal("review")),
      kept("beside", step("beside", does("beside"))),
    ]);
    await kept("review#2", step.signal("review"));
    const onTimeout = { value: "none came" };
    await kept("answer", step.signal("answer", { timeoutMs: 2_500, onTimeout }));
    const last = step.loop("watch", 1, async (round, { step: inner, done }) => {
      const key = `watch@${round}/look`;
      const seen = await kept(key, inner("look", does(key)));
      if (round === 3) return done(seen);
      await inner.sleep("pause", 400);
      return round + 1;
    });
    await kept("watch", last);
  },

  async asking({ step, ...scene }) {
    await runAsking(step, scene);
  },

  async perilous({ step, does, kept }) {
    for (let at = 1; at <= 6; at++) {
      const key = at === 1 ? "go" : `go#${at}`;
      await kept(key, step("go", does(key)));
    }
  },
};

export const steppingNames = Object.keys(scripts);

// Few kill their pods.
const shares = { stepping: 7, paying: 4, waiting: 6, asking: 6, perilous: 1 };
/** Names of tasks with steps, as often as each is likely. */
export const likelySteps = Object.entries(shares).flatMap(([name, share]) =>
  Array<string>(share).fill(name),
);

/** Runs the script of a name. Returns what its steps have returned, by their keys. */
export async function runSteps(
  name: string,
  { taskId, token, input, step }: SteppingContext,
  pod: SimPod,
  world: World,
  ledger: StepLedger,
): Promise<Record<string, unknown>> {
  const claim = { taskId, token };
  const result: Record<string, unknown> = {};
  const work = (durationMs: number) =>
    new Promise<void>((resolve) => void pod.clock.after(durationMs, resolve));

  const called = async (key: string, once: boolean, inner: () => Promise<string>) => {
    const call = ledger.begins(claim, key, { once });
    try {
      const found = await inner();
      await work(world.between(20, once ? 200 : 900));
      if (call.times === 1) fail(key);
      call.done();
      await work(once ? 300 : 0);
      return once ? call.value : `${call.value} ${found}`;
    } finally {
      call.over();
    }
  };
  /** Fails or kills its pod in the first call, at steps that the payload tells. */
  const fail = (key: string): void => {
    const at = (input.op + key.length) % 6;
    if (name === "perilous" ? input.times > 1 && key !== "go" : at === 1 && input.times === 3) {
      world.count("step: killed its pod");
      pod.crash("killed by a step");
    } else if (at === 0 && input.times > 0) {
      world.count("step: threw once");
      throw new Error(`${key} fails at first`);
    }
  };

  const script = scripts[name]!;
  await script({
    step,
    input,
    claim,
    ledger,
    work,
    does:
      (key, body = async () => "") =>
      (context) =>
        called(key, false, () => body(context)),
    doesOnce: (key) => () => called(key, true, async () => ""),
    look: (key) => ledger.doneOutside(taskId, key),
    async kept(key, returned) {
      const value = await returned;
      ledger.returned(claim, key, value);
      if (!key.includes("/")) result[key] = value;
      return value;
    },
  });
  return result;
}

const signals = [
  { id: "first", name: "review", withinMs: 6_000 },
  { id: "second", name: "review", withinMs: 12_000 },
  { id: "only", name: "answer", withinMs: 14_000 },
] as const;

/** Sends every task that waits its signals, until each is stored or refused because the task has ended. */
export function startSignals(world: World, network: Network): (taskId: string) => void {
  const { scheduler, count } = world;
  const lane = createLane(scheduler);
  const wallMs = () => startOfTimeMs + scheduler.nowMs;
  const clock = laneClock(scheduler, lane, { wallMs, startMs: 0 });
  const random = world.fork();
  const database = network.connect({ who: "signals", lane });
  const tasks = createTasks({ database, clock, random, ids: uuidv7(clock, random) });

  const send = async (taskId: string, id: string, name: string): Promise<void> => {
    try {
      await tasks.signal(taskId, name, `${signalWord} ${id}`, { id });
      count(`signal: ${name}`);
    } catch (error) {
      if (hasCode(error, "conflict", "not_found")) return count("signal: refused");
      if (!isUnanswered(error)) throw error;
      scheduler.after(world.between(100, 1_000), () => void send(taskId, id, name));
    }
  };
  return (taskId) => {
    for (const { id, name, withinMs } of signals) {
      const times = world.chance(0.3) ? 2 : 1;
      for (let sent = 0; sent < times; sent++) {
        scheduler.after(world.between(0, withinMs), () => void send(taskId, id, name));
      }
    }
  };
}

function isUnanswered(error: unknown): error is FlotillaError {
  return hasCode(error, "unknown_outcome", ...transientCodes);
}
