import type { LanguageModelV4Content, LanguageModelV4StreamPart } from "@ai-sdk/provider";
import { generateText, isStepCount, streamText, tool, ToolLoopAgent } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { describe, expect, test, vi } from "vitest";
import { z } from "zod";
// The release before, which `ai-sdk-react-3` brings along.
import * as six from "../../node_modules/ai-sdk-react-3/node_modules/ai/dist/index.mjs";
import { movableClock } from "../base/contract/movable-clock.ts";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import type { ModelCallOptions } from "../steps/model-calls.ts";
import { memoryJournal, memorySteps } from "../steps/contract/memory-steps.ts";
import type { StoredStep } from "../steps/model.ts";
import type { Budget } from "../base/usage.ts";
import { durable, type DurableContext, type DurableOptions, stepOf } from "./index.ts";

type Owner = {
  readonly clock?: Clock;
  readonly modelCalls?: ModelCallOptions;
  readonly signal?: AbortSignal;
};
type Crash = { readonly beforeStored?: string; readonly afterStored?: string };

/** A journal that outlives attempts, and loses the process at a step. */
function storedSteps({
  clock = movableClock(),
  modelCalls = {},
  signal = new AbortController().signal,
}: Owner = {}) {
  const rows = new Map<string, StoredStep>();
  const keys = () => [...rows.keys()];
  /** What each call used, and whether a stored one has answered. */
  const tokens: [input: number, output: number, again: boolean][] = [];
  const attempt = async <Result>(
    run: (context: DurableContext) => Promise<Result>,
    crash: Crash = {},
  ): Promise<Result | "crashed"> => {
    const died = Promise.withResolvers<"crashed">();
    let dead = false;
    const die = async (): Promise<never> => {
      dead = true;
      died.resolve("crashed");
      return new Promise<never>(() => {});
    };
    const journal = memoryJournal(rows);
    const steps = memorySteps(rows, {
      journal: {
        ...journal,
        async store(write) {
          if (dead || write.key === crash.beforeStored) return die();
          await journal.store(write);
          if (write.key === crash.afterStored) return die();
        },
      },
      clock,
      modelCalls: {
        onTokens: ({ input, output }, { again }) => tokens.push([input, output, again]),
        ...modelCalls,
      },
      signal: () => signal,
      refusal: () => (dead ? new FlotillaError("claim_lost", "dead") : undefined),
    });
    return Promise.race([run({ step: steps.step }), died.promise]);
  };
  return { rows, keys, attempt, tokens };
}

const usage = (input?: number, output?: number) => ({
  inputTokens: { total: input, noCache: input, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: output, text: output, reasoning: undefined },
});

type Said = { readonly text?: string; readonly calls?: readonly [name: string, input: object][] };

/** A model that says one thing after the other, by how often tools have answered. */
function scripted(
  answers: readonly Said[],
  ids = (nth: number, at: number) => `call-${nth}-${at}`,
) {
  const asked: number[] = [];
  const answerTo = (prompt: readonly { role: string }[]) => {
    const nth = prompt.filter(({ role }) => role === "tool").length;
    asked.push(nth);
    const { text, calls = [] } = answers[nth]!;
    const content: LanguageModelV4Content[] = [
      ...(text === undefined ? [] : [{ type: "text" as const, text }]),
      ...calls.map(([toolName, input], at) => ({
        type: "tool-call" as const,
        toolCallId: ids(nth, at),
        toolName,
        input: JSON.stringify(input),
      })),
    ];
    const unified = calls.length > 0 ? ("tool-calls" as const) : ("stop" as const);
    return { content, finishReason: { unified, raw: unified }, usage: usage(100, 10) };
  };
  const model = new MockLanguageModelV4({
    doGenerate: async ({ prompt }) => ({ ...answerTo(prompt), warnings: [] }),
    doStream: async ({ prompt }) => {
      const { content, ...finish } = answerTo(prompt);
      const parts = content.flatMap((part): LanguageModelV4StreamPart[] => {
        if (part.type !== "text") return [part as LanguageModelV4StreamPart];
        const deltas = part.text.split(/(?<= )/);
        return [
          { type: "text-start", id: "0" },
          ...deltas.map((delta) => ({ type: "text-delta" as const, id: "0", delta })),
          { type: "text-end", id: "0" },
        ];
      });
      const stream = convertArrayToReadableStream<LanguageModelV4StreamPart>([
        { type: "stream-start", warnings: [] },
        { type: "response-metadata", id: "r1", modelId: "m", timestamp: new Date(1_000) },
        ...parts,
        { type: "finish", ...finish },
      ]);
      return { stream };
    },
  });
  return { model, asked };
}

const twoCalls: readonly Said[] = [
  { text: "let me look ", calls: [["weather", { city: "Oslo" }]] },
  { text: "and book ", calls: [["book", { seats: 2 }]] },
  { text: "done" },
];

/** What is used of the SDK, in either release. */
type Sdk = Pick<typeof import("ai"), "streamText" | "ToolLoopAgent"> & { release: number };
const releases: readonly Sdk[] = [
  { release: 6, ...(six as unknown as Omit<Sdk, "release">) },
  { release: 7, streamText, ToolLoopAgent },
];
const last = releases[1]!;

function travel(sdk: Sdk = last, answers = twoCalls) {
  const scriptedModel = scripted(answers);
  if (sdk.release === 6) Object.assign(scriptedModel.model, { specificationVersion: "v3" });
  const weather = vi.fn<(input: { city: string }) => Promise<string>>(
    async ({ city }) => `rain in ${city}`,
  );
  const book = vi.fn<(input: { seats: number }, key: string) => Promise<object>>(
    async (_input, key) => ({ booked: key }),
  );
  const tools = {
    weather: tool({ inputSchema: z.object({ city: z.string() }), execute: weather }),
    book: tool({
      inputSchema: z.object({ seats: z.number() }),
      execute: (input, options) => book(input, stepOf(options).key),
    }),
  };
  const settings = { model: scriptedModel.model, tools, stopWhen: isStepCount(10) };
  const stream = async (context: DurableContext) => {
    const result = sdk.streamText({ ...durable(context, settings), prompt: "go" });
    return { text: await result.text, steps: await result.steps };
  };
  return { ...scriptedModel, settings, weather, book, stream };
}

describe.each(releases)("a durable agent of the AI SDK $release", (sdk) => {
  test("stores each model call and each tool once, by name and number", async () => {
    const { attempt, keys } = storedSteps();
    const { stream, asked } = travel(sdk);
    const result = await attempt(stream);
    expect(result).toMatchObject({ text: "done" });
    expect(asked).toEqual([0, 1, 2]);
    expect(keys()).toEqual([
      "model[1]",
      "weather[1.call-0-0]",
      "model[2]",
      "book[2.call-1-0]",
      "model[3]",
    ]);
  });

  test("tells its context the tokens of each call, and which of them the journal has saved", async () => {
    const { attempt, tokens } = storedSteps();
    const { stream } = travel(sdk);
    expect(await attempt(stream, { beforeStored: "model[3]" })).toBe("crashed");
    expect(tokens).toEqual([
      [100, 10, false],
      [100, 10, false],
    ]);
    tokens.length = 0;
    await attempt(stream);
    expect(tokens).toEqual([
      [100, 10, true],
      [100, 10, true],
      [100, 10, false],
    ]);
  });

  const places = ["model[1]", "weather[1.call-0-0]", "model[2]", "book[2.call-1-0]", "model[3]"];

  test.each(places)("goes on behind its last stored step, if it dies after %s", async (place) => {
    const { attempt } = storedSteps();
    const { stream, asked, weather, book } = travel(sdk);
    const clean = await storedSteps().attempt(travel(sdk).stream);
    expect(await attempt(stream, { afterStored: place })).toBe("crashed");
    const again = await attempt(stream);
    expect(asked).toEqual([0, 1, 2]);
    expect([weather.mock.calls.length, book.mock.calls.length]).toEqual([1, 1]);
    const shown = (of: unknown) =>
      (of as { steps: { content: unknown; usage: unknown }[] }).steps.map((each) => [
        each.content,
        each.usage,
      ]);
    expect(JSON.stringify(shown(again))).toBe(JSON.stringify(shown(clean)));
  });

  test.each(places)("repeats only what wasn't stored, if it dies before %s is", async (place) => {
    const { attempt } = storedSteps();
    const { stream, asked, weather, book } = travel(sdk);
    expect(await attempt(stream, { beforeStored: place })).toBe("crashed");
    expect(await attempt(stream)).toMatchObject({ text: "done" });
    expect(asked.length + weather.mock.calls.length + book.mock.calls.length).toBe(6);
    expect(new Set(book.mock.calls.map(([, key]) => key)).size).toBe(1);
  });

  test("answers from the store as an agent with a loop, too", async () => {
    const { attempt } = storedSteps();
    const { settings, asked } = travel(sdk);
    const run = async (context: DurableContext) => {
      const agent = new sdk.ToolLoopAgent(durable(context, settings));
      return (await agent.generate({ prompt: "go" })).text;
    };
    expect(await attempt(run)).toBe("done");
    expect(await attempt(run)).toBe("done");
    expect(asked).toEqual([0, 1, 2]);
  });
});

describe("a durable agent", () => {
  test("begins no tool before the call that asked for it is stored", async () => {
    const { attempt } = storedSteps();
    const { stream, weather } = travel();
    await attempt(stream, { beforeStored: "model[1]" });
    await new Promise((resolve) => setImmediate(resolve));
    expect(weather).not.toHaveBeenCalled();
  });

  test("lets words through before the call is stored", async () => {
    const { attempt } = storedSteps();
    const { settings } = travel();
    const words: string[] = [];
    await attempt(
      async (context) => {
        const result = streamText({ ...durable(context, settings), prompt: "go" });
        for await (const word of result.textStream) words.push(word);
      },
      { beforeStored: "model[1]" },
    );
    await expect.poll(() => words.join("")).toBe("let me look ");
  });

  test("keeps apart calls of tools whose ids a provider uses again", async () => {
    const { attempt, keys } = storedSteps();
    const same = scripted(
      [{ calls: [["add", { n: 1 }]] }, { calls: [["add", { n: 2 }]] }, { text: "done" }],
      () => "call_0",
    );
    const add = vi.fn<(input: { n: number }) => Promise<number>>(async ({ n }) => n + 1);
    const tools = { add: tool({ inputSchema: z.object({ n: z.number() }), execute: add }) };
    const settings = { model: same.model, tools, stopWhen: isStepCount(5) };
    await attempt((context) => generateText({ ...durable(context, settings), prompt: "go" }));
    expect(add).toHaveBeenCalledTimes(2);
    expect(keys()).toContain("add[1.call_0]");
    expect(keys()).toContain("add[2.call_0]");
  });

  test("makes a call that failed again under its number, as the SDK does by itself", async () => {
    const { attempt, keys } = storedSteps();
    const { model } = scripted([{ text: "hello" }]);
    const answer = model.doGenerate;
    let tries = 0;
    model.doGenerate = async (options) => {
      if (++tries === 1) throw new Error("overloaded");
      return answer(options);
    };
    const call = async (context: DurableContext) => {
      const settings = durable(context, { model });
      try {
        return await generateText({ ...settings, prompt: "go", maxRetries: 0 });
      } catch {
        return generateText({ ...settings, prompt: "go", maxRetries: 0 });
      }
    };
    expect(await attempt(call)).toMatchObject({ text: "hello" });
    expect(keys()).toEqual(["model[1]"]);
  });

  test("stores what a tool threw, and doesn't call it again", async () => {
    const { attempt } = storedSteps();
    const { model, asked } = scripted([{ calls: [["fail", {}]] }, { text: "sorry" }]);
    const execute = vi.fn<() => Promise<string>>(async () => {
      throw new Error("no such city");
    });
    const tools = { fail: tool({ inputSchema: z.object({}), execute }) };
    const run = async (context: DurableContext) => {
      const settings = durable(context, { model, tools, stopWhen: isStepCount(5) });
      const { steps } = await generateText({ ...settings, prompt: "go" });
      return steps[0]!.content.find(({ type }) => type === "tool-error");
    };
    await attempt(run, { afterStored: "model[2]" });
    expect(await attempt(run)).toMatchObject({ error: { message: "no such city" } });
    expect(execute).toHaveBeenCalledTimes(1);
    expect(asked).toEqual([0, 1]);
  });

  /** What a tool's output or error is, in the attempt that ran it and in the next. */
  const toldOf = async (execute: () => unknown) => {
    const { attempt } = storedSteps();
    const { model } = scripted([{ calls: [["give", {}]] }, { text: "done" }]);
    const spy = vi.fn<() => Promise<unknown>>(async () => execute());
    const tools = { give: tool({ inputSchema: z.object({}), execute: spy }) };
    const run = async (context: DurableContext) => {
      const settings = durable(context, { model, tools, stopWhen: isStepCount(5) });
      const { steps } = await generateText({ ...settings, prompt: "go" });
      const told = steps[0]!.content.find(({ type }) => /^tool-(error|result)$/.test(type));
      const { output, error } = told as { output?: unknown; error?: Error };
      return error ? error.message : JSON.stringify(output);
    };
    const live = await attempt(run);
    expect(await attempt(run)).toBe(live);
    expect(spy).toHaveBeenCalledTimes(1);
    return live;
  };

  test.each([
    ["U+0000", "bad \0 byte", "bad \uFFFD byte"],
    ["half a pair", "bad \uD83D", "bad \uFFFD"],
    ["a pair at its cut", "x".repeat(3_999) + "\u{1F600}", "x".repeat(3_999) + "\uFFFD"],
  ])("stores what a tool threw with %s in it", async (_what, thrown, told) => {
    const message = await toldOf(() => {
      throw new Error(thrown);
    });
    expect(message).toBe(told);
  });

  class Money {
    readonly #cents = 1_250;
    readonly inner = "not shown";
    toJSON() {
      return { amount: this.#cents / 100 };
    }
  }
  const shared = { a: 1 };

  test.each<[string, unknown]>([
    ["a class that says how", { price: new Money(), all: [new Money()] }],
    ["dates and addresses", { at: new Date(0), never: new Date(NaN), url: new URL("https://x.y") }],
    ["numbers that are none", [NaN, Infinity, { x: -Infinity }]],
    [
      "what JSON leaves out",
      { f: () => 1, u: undefined, s: Symbol("s"), list: [undefined, () => 1] },
    ],
    ["one object twice", [shared, shared]],
    ["objects of texts and numbers", [new Number(1), new String("a"), new Boolean(false)]],
    ["names with a dollar", { $date: "no date" }],
  ])("gives the model of a tool's output what JSON does: %s", async (_what, output) => {
    expect(await toldOf(() => output)).toBe(JSON.stringify(output));
  });

  const cycle: Record<string, unknown> = {};
  cycle["self"] = [cycle];

  test.each([
    ["a BigInt", { total: 5n }],
    ["an object that has itself within it", cycle],
  ])("tells the model that a tool has returned %s, and calls it once", async (what, output) => {
    expect(await toldOf(() => output)).toContain(
      `the tool "give" has returned ${what}, which JSON can't hold: return plain objects`,
    );
  });

  describe.each([
    ["heeds its signal", true],
    ["goes on", false],
  ])("a tool that takes too long and %s", (_what, heeds) => {
    test.each([
      ["", []],
      [" and must run once", ["slow"]],
    ])("has ended with an error%s, and isn't called again", async (_which, once) => {
      const clock = movableClock();
      const { attempt, rows } = storedSteps({ clock });
      const { model, asked } = scripted([{ calls: [["slow", {}]] }, { text: "sorry" }]);
      const began = Promise.withResolvers<void>();
      const execute = vi.fn<(input: object, options: object) => Promise<string>>(
        (_input, options) => {
          began.resolve();
          return new Promise((_resolve, reject) => {
            const { signal } = stepOf(options);
            signal.addEventListener("abort", () => heeds && reject(new Error("aborted")));
          });
        },
      );
      const tools = { slow: tool({ inputSchema: z.object({}), execute }) };
      const run = async (context: DurableContext) => {
        const settings = { model, tools, stopWhen: isStepCount(5) };
        const made = durable(context, settings, { toolTimeoutMs: 60_000, once });
        const { steps } = await generateText({ ...made, prompt: "go" });
        return steps[0]!.content.find(({ type }) => type === "tool-error");
      };
      const first = attempt(run, { afterStored: "model[2]" });
      await began.promise;
      await clock.advance(62_000);
      expect(await first).toBe("crashed");
      expect(rows.get("slow[1.call-0-0]")!.kind).toBe("done");
      const message = 'the tool "slow" took longer than 60000 ms';
      expect(await attempt(run)).toMatchObject({ error: { message } });
      expect(execute).toHaveBeenCalledTimes(1);
      expect(asked).toEqual([0, 1]);
    });
  });

  test("a tool whose attempt was stopped has no end, and runs again", async () => {
    const stop = new AbortController();
    const { attempt, keys } = storedSteps({ signal: stop.signal });
    const { model } = scripted([{ calls: [["slow", {}]] }, { text: "sorry" }]);
    const execute = (_input: object, options: object): Promise<string> =>
      new Promise((_resolve, reject) => {
        const { signal } = stepOf(options);
        signal.addEventListener("abort", () => reject(new Error("aborted")));
        stop.abort(new FlotillaError("cancelled", "stop"));
      });
    const tools = { slow: tool({ inputSchema: z.object({}), execute }) };
    await attempt((context) =>
      generateText({ ...durable(context, { model, tools }), prompt: "go" }),
    );
    expect(keys()).toEqual(["model[1]"]);
  });

  test("an agent within a tool has steps within the tool's step, which go with it", async () => {
    const { attempt, keys } = storedSteps();
    const inner = scripted([{ text: "a poem" }]);
    const outer = scripted([{ calls: [["write", {}]] }, { text: "here it is" }]);
    const tools = {
      write: tool({
        inputSchema: z.object({}),
        execute: async (_input, options) => {
          const settings = durable(stepOf(options), { model: inner.model });
          return (await generateText({ ...settings, prompt: "write" })).text;
        },
      }),
    };
    const run = async (context: DurableContext) => {
      const settings = durable(context, { model: outer.model, tools, stopWhen: isStepCount(5) });
      return (await generateText({ ...settings, prompt: "go" })).text;
    };
    await attempt(run, { afterStored: "write[1.call-0-0]/model[1]" });
    expect(keys()).toContain("write[1.call-0-0]/model[1]");
    expect(await attempt(run)).toBe("here it is");
    expect(inner.asked).toEqual([0]);
    expect(keys()).toEqual(["model[1]", "write[1.call-0-0]", "model[2]"]);
  });

  test.each(["in its tool", "before"])(
    "refuses an agent within a tool that has the context around it, made %s",
    async (when) => {
      const { attempt, keys } = storedSteps();
      const inner = scripted([{ text: "a poem" }]);
      const outer = scripted([{ calls: [["write", {}]] }, { text: "here it is" }]);
      const run = async (context: DurableContext) => {
        const make = () => durable(context, { model: inner.model }, { name: "poet" });
        const made = when === "before" ? make() : undefined;
        const tools = {
          write: tool({
            inputSchema: z.object({}),
            execute: async () => generateText({ ...(made ?? make()), prompt: "write" }),
          }),
        };
        const settings = durable(context, { model: outer.model, tools, stopWhen: isStepCount(5) });
        const { steps } = await generateText({ ...settings, prompt: "go" });
        return steps[0]!.content.find(({ type }) => type === "tool-error");
      };
      const message = expect.stringContaining("durable(stepOf(options), …)") as string;
      expect(await attempt(run)).toMatchObject({ error: { code: "step_ambiguous", message } });
      expect(inner.asked).toEqual([]);
      expect(keys()).toEqual(["model[1]", "model[2]"]);
    },
  );

  test("stores an answer in pieces that is larger than a step may be", async () => {
    const { attempt, keys } = storedSteps();
    const text = "\u{1F600}word ".repeat(30_000);
    const { model, asked } = scripted([{ text }]);
    const run = async (context: DurableContext) =>
      (await generateText({ ...durable(context, { model }), prompt: "go" })).text;
    expect(await attempt(run)).toBe(text);
    expect(keys().length).toBeGreaterThan(3);
    expect(await attempt(run)).toBe(text);
    expect(asked).toEqual([0]);
  });

  test("counts its budget from what is stored, and answers once more without tools", async () => {
    const { attempt } = storedSteps();
    const loops = Array.from({ length: 9 }, () => ({ text: "on ", calls: twoCalls[0]!.calls! }));
    const { model, weather, asked } = travel(last, loops);
    const tools = travel().settings.tools;
    const seen: unknown[] = [];
    const generate = model.doGenerate;
    model.doGenerate = async (options) => {
      seen.push(options.tools);
      return generate(options);
    };
    const settings = { model, tools, stopWhen: isStepCount(20) };
    const run = (context: DurableContext) =>
      generateText({
        ...durable(context, settings, { budget: { tokens: 300 } }),
        prompt: "go",
      });
    await attempt(run, { afterStored: "model[2]" });
    await expect(attempt(run)).rejects.toThrow("the budget is spent: 440 of 300 tokens");
    expect(asked).toEqual([0, 1, 2, 3]);
    expect(seen.at(-1)).toBeUndefined();
    expect(weather).not.toHaveBeenCalled();
  });

  /** An agent that would call tools for ever, and how often its model was asked. */
  const endless = (onAsked?: () => Promise<void>) => {
    const loops = Array.from({ length: 9 }, () => ({ text: "on ", calls: twoCalls[0]!.calls! }));
    const { model, settings, asked } = travel(last, loops);
    const { doGenerate } = model;
    model.doGenerate = async (options) => {
      await onAsked?.();
      return doGenerate(options);
    };
    return { asked, settings: { ...settings, model, stopWhen: isStepCount(9) } };
  };
  const stopping = (budget: Budget, settings: object) => (context: DurableContext) => {
    const bounded = durable(context, settings, { budget, onSpent: "stop" });
    return generateText({ ...(bounded as { model: MockLanguageModelV4 }), prompt: "go" });
  };

  test("counts what models cost, by the prices of the config", async () => {
    const prices = { "mock-model-id": { input: 1_000, output: 1_000 } };
    const { attempt } = storedSteps({ modelCalls: { prices } });
    const { asked, settings } = endless();
    const spent = attempt(stopping({ cost: 0.2 }, settings));
    await expect(spent).rejects.toThrow("the budget is spent: a cost of 0.22 of 0.2");
    expect(asked).toHaveLength(2);
  });

  test.each([
    ["without prices", undefined, "what models cost"],
    ["of a model without a price", { other: { input: 1, output: 1 } }, 'what "mock-model-id" cost'],
  ])("refuses a budget of money %s", async (_what, prices, message) => {
    const { attempt } = storedSteps({ modelCalls: { prices } });
    const { asked, settings } = endless();
    const spent = attempt(async (context) => stopping({ cost: 1 }, settings)(context));
    await expect(spent).rejects.toThrow(message);
    expect(asked).toEqual([]);
  });

  test("counts how long models have taken, over all attempts", async () => {
    const clock = movableClock();
    const { attempt } = storedSteps({ clock });
    const { asked, settings } = endless(() => clock.advance(1_000));
    const run = stopping({ ms: 2_500 }, settings);
    expect(await attempt(run, { afterStored: "model[1]" })).toBe("crashed");
    await expect(attempt(run)).rejects.toThrow("the budget is spent: 3000 of 2500 ms");
    expect(asked).toHaveLength(3);
  });

  test("keeps to the budget of its owner as well", async () => {
    const { attempt } = storedSteps({ modelCalls: { budget: { calls: 2 } } });
    const { asked, settings } = endless();
    const spent = attempt(stopping({ tokens: 10_000 }, settings));
    await expect(spent).rejects.toThrow("the budget is spent: 2 of 2 calls");
    expect(asked).toHaveLength(2);
  });

  const generateIn = (context: DurableContext, model: MockLanguageModelV4, options = {}) =>
    generateText({ ...durable(context, { model }, options), prompt: "go" });

  test("keeps to the budget of its owner in steps of the context", async () => {
    const { attempt } = storedSteps({ modelCalls: { budget: { calls: 2 } } });
    const { model, asked } = scripted([{ text: "hi" }]);
    const parts = attempt(async ({ step }) => {
      for (let at = 0; at < 8; at++) {
        await step(`part${at}`, async (within) => (await generateIn(within, model)).text);
      }
    });
    await expect(parts).rejects.toThrow("the budget is spent: 3 of 2 calls");
    // The two, and one without tools.
    expect(asked).toHaveLength(3);
  });

  test("counts the rounds of a loop for its budget", async () => {
    const { attempt } = storedSteps();
    const { model, asked } = scripted([{ text: "hi" }]);
    const options = { budget: { calls: 2 }, onSpent: "stop" };
    const rounds = attempt(({ step }) =>
      step.loop("round", 0, async (at: number, within) => {
        await generateIn(within, model, options);
        return at === 5 ? within.done("end") : at + 1;
      }),
    );
    await expect(rounds).rejects.toThrow("the budget is spent: 2 of 2 calls");
    expect(asked).toHaveLength(2);
  });

  test("counts each call once for its budget, though its step is called again", async () => {
    const { attempt, tokens } = storedSteps();
    const { model, asked } = scripted([{ text: "hi" }]);
    const options = { budget: { calls: 3 }, onSpent: "stop" };
    const run = async ({ step }: DurableContext) => {
      const part = () =>
        step("part", async (within) => {
          await generateIn(within, model, options);
          await generateIn(within, model, options);
          throw new Error("not yet");
        });
      await part().catch(() => {});
      return part();
    };
    expect(await attempt(run, { afterStored: "part/model[1]" })).toBe("crashed");
    tokens.length = 0;
    await expect(attempt(run)).rejects.toThrow("not yet");
    // The stored one, and the second one of each run.
    expect(asked).toHaveLength(3);
    expect(tokens).toHaveLength(3);
    // Nothing is stored here, and each run makes its calls.
    asked.length = 0;
    await expect(storedSteps().attempt(run)).rejects.toThrow("the budget is spent: 3 of 3 calls");
    expect(asked).toHaveLength(3);
  });

  test("lets agents within tools at the same time begin no more calls than its budget", async () => {
    const { attempt } = storedSteps();
    const inner = scripted([{ text: "found" }]);
    const calls = Array.from({ length: 50 }, () => ["research", {}] as [string, object]);
    const outer = scripted([{ calls }, { text: "end" }]);
    const tools = {
      research: tool({
        inputSchema: z.object({}),
        execute: async (_input, options) => (await generateIn(stepOf(options), inner.model)).text,
      }),
    };
    const run = async (context: DurableContext) => {
      const settings = { model: outer.model, tools, stopWhen: isStepCount(5) };
      const bounded = durable(context, settings, { budget: { calls: 5 } });
      return (await generateText({ ...bounded, prompt: "go" })).text;
    };
    expect(await attempt(run)).toBe("end");
    // Five, and the one that answers without tools.
    expect([outer.asked.length, inner.asked.length]).toEqual([2, 4]);
  });

  describe("an agent within a tool", () => {
    const research = () => {
      const inner = scripted([{ text: "found" }]);
      const looks = Array.from({ length: 9 }, () => ({ calls: [["look", {}]] }) as Said);
      const outer = scripted(looks);
      const tools = {
        look: tool({
          inputSchema: z.object({}),
          execute: async (_input, options) => (await generateIn(stepOf(options), inner.model)).text,
        }),
      };
      const settings = { model: outer.model, tools, stopWhen: isStepCount(9) };
      return {
        run: stopping({ calls: 5 }, settings),
        counts: () => [outer, inner].map((each) => each.asked.length),
      };
    };
    const crashes = ["none", "look[1.call-0-0]/model[1]", "look[1.call-0-0]", "model[3]"];

    test.each(crashes)(
      "counts once for a budget around it, with a crash after %s",
      async (place) => {
        const { attempt } = storedSteps();
        const { run, counts } = research();
        const first = place === "none" ? "crashed" : await attempt(run, { afterStored: place });
        expect(first).toBe("crashed");
        await expect(attempt(run)).rejects.toThrow("the budget is spent: 5 of 5 calls");
        expect(counts()).toEqual([3, 2]);
      },
    );

    test.each(crashes)(
      "counts once for its task or answer, with a crash after %s",
      async (place) => {
        const { attempt, tokens } = storedSteps();
        const { run } = research();
        if (place !== "none") await attempt(run, { afterStored: place });
        const made = tokens.filter(([, , again]) => !again).length;
        tokens.length = 0;
        await expect(attempt(run)).rejects.toThrow("spent");
        expect(tokens).toHaveLength(5);
        // The call that was stored as the process died was not told, and counts as saved.
        const saved = tokens.filter(([, , again]) => again).length;
        expect(saved - made).toBe(/model/.test(place) ? 1 : 0);
      },
    );
  });

  const finish = {
    type: "finish" as const,
    finishReason: { unified: "stop" as const, raw: "stop" },
    usage: usage(100, 10),
  };
  const words: LanguageModelV4StreamPart[] = [
    { type: "text-start", id: "0" },
    { type: "text-delta", id: "0", delta: "half" },
  ];
  const streaming = (parts: readonly LanguageModelV4StreamPart[]) =>
    new MockLanguageModelV4({
      doStream: async () => ({
        stream: convertArrayToReadableStream<LanguageModelV4StreamPart>([...parts]),
      }),
    });

  test.each<[string, LanguageModelV4StreamPart[], string]>([
    ["ends without saying so", words, "ended without a finish"],
    ["has an error in it", [...words, { type: "error", error: new Error("cut") }, finish], "cut"],
  ])("does not store an answer that %s", async (_what, parts, message) => {
    const { attempt, keys } = storedSteps();
    const errors: unknown[] = [];
    const run = async (context: DurableContext) => {
      const settings = durable(context, { model: streaming(parts) });
      const onError = ({ error }: { error: unknown }) => void errors.push(error);
      const result = streamText({ ...settings, prompt: "go", onError });
      const said: string[] = [];
      for await (const word of result.textStream) said.push(word);
      return said;
    };
    expect(await attempt(run)).toEqual(["half"]);
    expect(String(errors[0])).toContain(message);
    expect(keys()).toEqual([]);
  });

  test("brings back reasoning with its signature, sources, and what the provider ran", async () => {
    const signed = { anthropic: { signature: "abc" } };
    const parts: LanguageModelV4StreamPart[] = [
      { type: "reasoning-start", id: "r" },
      { type: "reasoning-delta", id: "r", delta: "hm" },
      { type: "reasoning-end", id: "r", providerMetadata: signed },
      { type: "tool-input-start", id: "s", toolName: "search", providerExecuted: true },
      { type: "tool-input-end", id: "s" },
      {
        type: "tool-call",
        toolCallId: "s",
        toolName: "search",
        input: "{}",
        providerExecuted: true,
        dynamic: true,
      },
      {
        type: "tool-result",
        toolCallId: "s",
        toolName: "search",
        result: { hits: 1 },
        dynamic: true,
      },
      { type: "source", sourceType: "url", id: "u", url: "https://example.org" },
      {
        type: "file",
        mediaType: "image/png",
        data: { type: "data", data: new Uint8Array([1, 2]) },
      },
      ...words,
      { type: "text-end", id: "0" },
      finish,
    ];
    const { attempt } = storedSteps();
    const run = async (context: DurableContext) => {
      const settings = durable(context, { model: streaming(parts) });
      const { steps } = streamText({ ...settings, prompt: "go" });
      return JSON.stringify((await steps)[0]!.content);
    };
    const first = await attempt(run);
    expect(first).toContain('"signature":"abc"');
    expect(await attempt(run)).toBe(first);
  });

  test("estimates what a call used where the provider does not say", async () => {
    const silent = { ...finish, usage: usage() };
    const model = streaming([...words, { type: "text-end", id: "0" }, silent]);
    const { attempt, rows } = storedSteps();
    await attempt(async (context) => {
      await streamText({ ...durable(context, { model }), prompt: "x".repeat(400) }).text;
    });
    const { usage: used } = JSON.parse(rows.get("model[1]")!.value!) as { usage: object };
    expect(used).toMatchObject([{ calls: 1, inputTokens: 100, outputTokens: 1 }]);
  });

  test("shows what a tool yields on its way, and stores the last of it", async () => {
    const { attempt, rows } = storedSteps();
    const { model } = scripted([{ calls: [["count", {}]] }, { text: "done" }]);
    let runs = 0;
    const tools = {
      count: tool({
        inputSchema: z.object({}),
        async *execute() {
          runs++;
          yield "one";
          yield "two";
        },
      }),
    };
    const run = async (context: DurableContext) => {
      const settings = durable(context, { model, tools, stopWhen: isStepCount(5) });
      const shown: unknown[] = [];
      for await (const part of streamText({ ...settings, prompt: "go" }).fullStream) {
        if (part.type === "tool-result") shown.push([part.output, part.preliminary ?? false]);
      }
      return shown;
    };
    const shown = await attempt(run);
    expect(shown).toContainEqual(["one", true]);
    expect((shown as unknown[]).at(-1)).toEqual(["two", false]);
    expect(rows.get("count[1.call-0-0]")!.value).toContain("two");
    expect(((await attempt(run)) as unknown[]).at(-1)).toEqual(["two", false]);
    expect(runs).toBe(1);
  });

  test("never calls a tool twice that must run once, and tells the model so", async () => {
    const { attempt } = storedSteps();
    const { settings, book } = travel();
    const run = async (context: DurableContext) => {
      const { steps } = await generateText({
        ...durable(context, settings, { once: ["book"] }),
        prompt: "go",
      });
      return steps[1]!.content.find(({ type }) => type === "tool-error");
    };
    let dead = () => {};
    book.mockImplementationOnce(() => new Promise(() => dead()));
    const died = new Promise<void>((resolve) => (dead = resolve));
    void attempt(run);
    await died;
    expect(await attempt(run)).toMatchObject({ error: { code: "unknown_outcome" } });
    expect(book).toHaveBeenCalledTimes(1);
  });

  test.each<[string, object, string, object?]>([
    ["a name of a model", { model: "openai/gpt" }, "must be a model object"],
    ["an unknown option", {}, "unknown option `nme`, did you mean", { nme: "x" }],
    ["a misspelt tool", { tools: { order: {} } }, 'did you mean "order"?', { once: ["ordr"] }],
    ["a tool that isn't there", { tools: {} }, "no tool has that name", { once: ["order"] }],
    ["a time that is none", {}, "toolTimeoutMs must be a whole number", { toolTimeoutMs: 0 }],
  ])("refuses %s", async (_what, settings, message, options = {}) => {
    const made = storedSteps().attempt(async (context) =>
      durable(context, settings, options as DurableOptions),
    );
    await expect(made).rejects.toThrow(message);
  });

  test("refuses a context that isn't one", () => {
    const step = Object.assign(async () => null, {});
    for (const context of [{}, { step }]) {
      expect(() => durable(context as unknown as DurableContext, {})).toThrow(
        "its first argument is the context of a task",
      );
    }
  });
});
