/**
 * The agents of a simulation, one for each way in which an agent behaves, and the book that is kept of
 * their calls. Whether a call may be made is judged by what is stored at that moment.
 */
import { abort } from "../../../src/base/errors.ts";
import type { Chunk } from "../../../src/protocol/chunk.ts";
import { agent } from "../../../src/sessions/agents/agent.ts";
import type {
  AgentContext,
  AgentSpec,
  CompactorContext,
} from "../../../src/sessions/agents/spec.ts";
import type { AgentOptions } from "../../../src/sessions/agents/options.ts";
import type { Step } from "../../../src/steps/model.ts";
import type { AgentNetwork } from "../../../src/sessions/turns/network.ts";
import type { AgentRequest } from "../../../src/protocol/agent-http.ts";
import type { SimPod } from "../pod.ts";
import type { Ledger } from "./ledger.ts";
import type { World } from "../world.ts";
import { knownFrom, wordsOf } from "./words.ts";
import type { Witness } from "./witness.ts";

type Saying = AsyncGenerator<Chunk | string>;
type Scene = {
  readonly world: World;
  /** Waits, unless the answer isn't wanted any more. */
  readonly work: (durationMs: number) => Promise<void>;
  /** Waits, even if the answer isn't wanted any more. */
  readonly stay: (durationMs: number) => Promise<void>;
  readonly words: string;
  readonly context: Pick<AgentContext, "epoch" | "attempt">;
  /** The same call may be made again, because this one fails. */
  readonly fails: () => void;
  readonly step: Step;
  /** Does what the step of this key does outside, and returns what it came to. */
  readonly act: (key: string) => Promise<string>;
  /** Hears what has come, behind so many steps, and judges whether it may. */
  readonly hear: (behind: number) => Promise<void>;
  /** Waits for the step of this key, and judges what it returns. */
  readonly kept: <Value>(key: string, returned: Promise<Value>) => Promise<Value>;
};
type Script = {
  readonly options: AgentOptions;
  readonly say: (harness: Scene) => Saying;
  /** How likely a compactor that is called breaks down. */
  readonly breaks?: number;
  /** It is stored, and at a URL: any pod can run it. Others are in the code of some pods. */
  readonly isStored?: boolean;
};

const backoff = { baseMs: 100, factor: 2, maxMs: 500 };
const filler = "and so on, ".repeat(64);

async function* shortly({ world, work, words }: Scene): Saying {
  await work(world.between(5, 300));
  yield words;
  await work(world.between(0, 200));
  yield ".";
}

async function* atLength({ world, work, words }: Scene): Saying {
  yield words;
  for (let left = world.between(3, 7); left > 0; left--) {
    await work(world.between(300, 1_200));
    yield filler;
  }
}

async function* inSteps({ step, words, act, kept, world, work }: Scene): Saying {
  yield words;
  yield await kept(
    "search",
    step("search", () => act("search")),
  );
  const pages = ["a", "b", "c"].map((key) =>
    kept(
      `read[${key}]`,
      step("read", { key }, () => act(`read[${key}]`)),
    ),
  );
  yield (await Promise.all(pages)).join();
  await work(world.between(0, 100));
  yield await kept(
    "tool",
    step("tool", async (tool) => {
      const found = await kept(
        "tool/find",
        tool.step("find", () => act("tool/find")),
      );
      return `${found} and ${await act("tool")}`;
    }),
  );
  const last = step.loop("loop", 1, async (round, { step: within, done }) => {
    const key = `loop@${round}/model`;
    const said = await kept(
      key,
      within("model", () => act(key)),
    );
    return round === 3 ? done(said) : round + 1;
  });
  yield await kept("loop", last);
}

async function* listening({ step, words, act, kept, hear }: Scene): Saying {
  yield words;
  for (let at = 0; at < 4; at++) {
    await hear(at);
    const key = `part ${at}`;
    yield await kept(
      key,
      step(key, () => act(key)),
    );
  }
  await hear(4);
}

const compaction = { tokenBudget: 300, triggerRatio: 0.5, deadlineMs: 3_000 };

const scripts: Readonly<Record<string, Script>> = {
  quick: { options: {}, say: shortly },
  slow: { options: {}, say: atLength },
  eager: {
    options: { during: "interrupt" },
    async *say({ world, work, words }) {
      await work(world.between(100, 1_500));
      yield words;
      await work(world.between(100, 1_500));
      yield ".";
    },
  },
  merging: { options: { during: "merge", debounceMs: 300 }, say: atLength },
  flaky: {
    options: { retries: 2, backoff },
    async *say(harness) {
      const { world, work, fails } = harness;
      await work(world.between(5, 200));
      if (world.chance(0.4)) {
        fails();
        throw world.chance(0.2) ? abort("nothing helps") : new Error("not now");
      }
      yield* shortly(harness);
    },
  },
  dying: {
    options: {},
    async *say({ world, work, words }) {
      yield words;
      await work(world.between(50, 2_500));
      yield filler;
      if (world.chance(0.5)) throw new Error("dies in the middle");
    },
  },
  stubborn: {
    options: { during: "interrupt" },
    async *say({ world, stay, words }) {
      yield words;
      await stay(world.between(500, 8_000));
      yield ".";
    },
  },
  silent: {
    options: { idleTimeoutMs: 2_000, retries: 2, backoff },
    async *say(harness) {
      if (harness.world.chance(0.3)) {
        harness.fails();
        await new Promise(() => {});
      }
      yield* shortly(harness);
    },
  },
  stepping: { options: {}, say: inSteps },
  acting: { options: { during: "interrupt" }, say: inSteps },
  gathering: { options: { during: "merge", debounceMs: 300 }, say: inSteps },
  steered: { options: { during: "steer" }, say: listening },
  directed: { options: { during: "steer" }, say: listening, breaks: 0.2 },
  keeping: { options: {}, say: shortly, breaks: 0 },
  breaking: { options: { during: "interrupt" }, say: shortly, breaks: 0.7 },
  calling: {
    options: {},
    async *say({ world, work, words, context }) {
      await work(world.between(5, 300));
      yield words;
      if (!world.chance(0.5)) return;
      const toolCallId = `t${context.epoch}.${context.attempt}`;
      yield { type: "tool-input-available", toolCallId, toolName: "ask", input: {} };
    },
  },
  far: { options: {}, say: shortly, isStored: true },
  distant: { options: { during: "interrupt" }, say: atLength, isStored: true },
};

export const agentNames = Object.keys(scripts);

/** Those that are to fail now and then. */
export const failing: readonly string[] = ["flaky", "dying", "silent"];

export type Agents = {
  /** Those in code. */
  of(pod: SimPod): AgentSpec[];
  /** The way from a pod to those that are stored. */
  network(pod: () => SimPod): AgentNetwork;
};

const site = "https://agents.example/";

/** Those that are stored, as they are made over HTTP. */
export const storedAgents = Object.entries(scripts)
  .filter(([, { isStored }]) => isStored)
  .map(([name, { options }]) => ({
    name,
    settings: { url: `${site}${name}`, history: "entire", ...options },
  }));

export function createAgents(world: World, witness: () => Witness, ledger: Ledger): Agents {
  const { scheduler, violate, count } = world;
  /** Calls by what they were made for, with whether they may be made once more. */
  const calls = new Map<string, { mayRepeat: boolean }>();

  /** What has heard each message: the turn, behind how many of its steps, and in which attempts. */
  const hearings = new Map<string, { epoch: number; behind: number; attempts: Set<number> }>();
  const steered = new Set<string>();

  const judgeHeard = (
    { sessionId, epoch, attempt }: Pick<AgentContext, "sessionId" | "epoch" | "attempt">,
    behind: number,
    messageId: string,
  ): void => {
    steered.add(sessionId);
    const name = `${sessionId} ${messageId}`;
    const before = hearings.get(name);
    count(before ? "steering: heard again" : "steering: heard");
    const what = `${name} is heard by ${epoch}.${attempt} behind ${behind} steps`;
    scheduler.note(what);
    if (!before) return void hearings.set(name, { epoch, behind, attempts: new Set([attempt]) });
    const { attempts } = before;
    if (before.epoch !== epoch || before.behind !== behind || attempts.has(attempt)) {
      violate(
        "W11",
        `${what}, and by ${before.epoch}.${[...attempts].join()} behind ${before.behind}`,
      );
    }
    attempts.add(attempt);
  };

  const begin = (
    pod: SimPod,
    { sessionId, epoch, attempt }: Pick<AgentContext, "sessionId" | "epoch" | "attempt">,
    kind: "turn" | "compaction",
  ) => {
    const name = `${kind} ${sessionId} ${epoch}.${attempt}`;
    scheduler.note(`${pod.podId} makes ${name}`);
    const seen = witness().sessions.get(sessionId);
    const { work, epoch: stored = -1 } = seen?.header ?? {};
    if (epoch > stored || (epoch === stored && attempt > (work?.attempt ?? attempt))) {
      violate("O3", `${name} began before it was stored, at ${stored}.${work?.attempt}`);
    }
    if (epoch === stored && work && work.type !== kind)
      violate("W3", `${name} beside ${work.type}`);
    if (work?.epoch === epoch && work.attempt === attempt && work.runner !== pod.podId) {
      violate("W1", `${name} is made by ${pod.podId}, not ${work.runner}`);
    }
    const before = calls.get(name);
    if (before && !before.mayRepeat) violate("W4", `${name} is made again`);
    const call = { mayRepeat: false };
    calls.set(name, call);
    return { call, seen, stored };
  };

  /** An agent gets everything up to its question, and nothing else. */
  const judgeTold = (
    pod: SimPod,
    context: Pick<AgentContext, "sessionId" | "epoch" | "messages">,
    saw: readonly string[],
  ): void => {
    const { sessionId, epoch } = context;
    const seen = witness().sessions.get(sessionId);
    const turn = seen?.turns.get(epoch);
    if (!seen || !turn || turn.trigger !== "submit" || seen.header.status === "deleted") return;
    const wanted = idsUpTo(seen.entries, turn.upToSeq);
    if (context.messages.every(({ id }) => id !== wanted.at(-1))) {
      violate("told", `${sessionId} ${epoch}: of ${wanted.at(-1)} it has only a summary`);
    }
    // What was heard during an answer stands in it, and may be in a summary too.
    const isSame = steered.has(sessionId)
      ? [...new Set(saw)].toSorted().join() === wanted.toSorted().join()
      : wanted.join() === saw.join();
    if (!isSame) {
      const what = `${sessionId} ${epoch} at ${pod.podId}`;
      violate("told", `${what} was told of ${saw.join()}, not ${wanted.join()}`);
    }
  };

  const compactor = (pod: SimPod, breaks: number) =>
    async function* (context: CompactorContext): Saying {
      const { call } = begin(pod, context, "compaction");
      call.mayRepeat = true;
      await waits(pod, world.between(50, 1_500), context.signal);
      if (world.chance(breaks)) {
        if (world.chance(0.3)) await new Promise(() => {});
        throw world.chance(0.5) ? abort("no summary") : new Error("no summary now");
      }
      const { epoch, attempt, summary, messages } = context;
      yield wordsOf({ epoch, attempt, podId: pod.podId, saw: knownFrom(summary, messages) });
    };

  type Told = Pick<AgentContext, "sessionId" | "epoch" | "attempt" | "messages"> & {
    readonly summary?: string | undefined;
    readonly step: Step;
    readonly steering: AgentContext["steering"];
  };

  /** Lets the agent of a script speak, and judges whether it may and what it was told. */
  const speak = (pod: SimPod, { say }: Script, context: Told, signal: AbortSignal): Saying => {
    const { call } = begin(pod, context, "turn");
    const { epoch, attempt, summary, messages } = context;
    const saw = knownFrom(summary, messages);
    judgeTold(pod, context, saw);
    return say({
      world,
      context,
      words: wordsOf({ epoch, attempt, podId: pod.podId, saw }),
      work: (durationMs) => waits(pod, durationMs, signal),
      stay: (durationMs) => waits(pod, durationMs, undefined),
      fails: () => void (call.mayRepeat = true),
      step: context.step,
      async act(key) {
        const done = ledger.begins(context, key);
        await waits(pod, world.between(20, 900), signal);
        return done;
      },
      async hear(behind) {
        for (const { id } of await context.steering()) judgeHeard(context, behind, id);
      },
      async kept(key, returned) {
        const value = await returned;
        ledger.returned(context, key, value);
        return value;
      },
    });
  };

  return {
    of: (pod) =>
      agentNames
        .filter((name) => !scripts[name]!.isStored)
        .map((name) => {
          const script = scripts[name]!;
          const { options, breaks } = script;
          const all: AgentOptions = {
            history: "entire",
            ...options,
            ...(breaks !== undefined && {
              compaction: { ...compaction, fn: compactor(pod, breaks) },
            }),
          };
          return agent(name, all, (context) => speak(pod, script, context, context.signal));
        }),
    network: (pod) => ({
      async post({ url, body, signal }) {
        world.count("turn: by a stored agent");
        const { messages, flotilla } = JSON.parse(body) as AgentRequest;
        const { sessionId, epoch, attempt, summary } = flotilla;
        const script = scripts[url.slice(site.length)]!;
        const steering = async () => [];
        const context = { sessionId, epoch, attempt, messages, summary, step: noStep, steering };
        const said = speak(pod(), script, context, signal);
        const headers = { "content-type": "application/x-ndjson" };
        return { status: 200, headers, body: linesOf(said) };
      },
      close: async () => {},
    }),
  };
}

/** Agents at URLs have no steps. */
const noStep = (() => Promise.reject(new Error("no steps"))) as unknown as Step;

/** What is said as the lines of an answer's body. */
async function* linesOf(said: Saying): AsyncGenerator<Uint8Array> {
  const line = (chunk: object) => new TextEncoder().encode(`${JSON.stringify(chunk)}\n`);
  yield line({ type: "start" });
  yield line({ type: "text-start", id: "1" });
  for await (const delta of said) yield line({ type: "text-delta", id: "1", delta });
  yield line({ type: "text-end", id: "1" });
  yield line({ type: "finish" });
}

/** What users have said up to there. */
export function idsUpTo(
  entries: readonly { seq: number; kind: string; role: string; messageId: string }[],
  seq: number,
): string[] {
  return entries
    .filter((each) => each.seq <= seq && each.kind === "message" && each.role === "user")
    .map(({ messageId }) => messageId);
}

function waits(pod: SimPod, durationMs: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const cancel = pod.clock.after(durationMs, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve();
    });
    const onAbort = () => {
      cancel();
      reject(signal!.reason as Error);
    };
    if (signal?.aborted) onAbort();
    else signal?.addEventListener("abort", onAbort, { once: true });
  });
}
