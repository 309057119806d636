import { streamText, tool } from "ai";
import { describe, expect, test, vi } from "vitest";
import { z } from "zod";
// The release before, which `ai-sdk-react-3` brings along.
import * as six from "../../node_modules/ai-sdk-react-3/node_modules/ai/dist/index.mjs";
import type { Json } from "../base/json.ts";
import { createUnfinished } from "../sessions/turns/unfinished.ts";
import { memorySteps } from "../steps/contract/memory-steps.ts";
import type { StoredStep } from "../steps/model.ts";
import { setUnfinished } from "../steps/unfinished.ts";
import { durable, type DurableContext, type DurableOptions, stepOf } from "./index.ts";

type Part = { readonly type: string } & Readonly<Record<string, unknown>>;

const sdks = [
  ["7", streamText],
  ["6", six.streamText as unknown as typeof streamText],
] as const;

/** A journal and a checkpoint that outlive attempts. An attempt is lost by being left where it is. */
function attempts({ keeps = true } = {}) {
  const rows = new Map<string, StoredStep>();
  let kept: Readonly<Record<string, Json>> = {};
  const begin = () => {
    const { step } = memorySteps(rows);
    const settled = vi.fn<() => void>();
    const unfinished = createUnfinished(kept, settled);
    if (keeps) setUnfinished(step, unfinished.steps);
    return {
      step,
      settled,
      unfinished,
      /** Stores what a checkpoint would hold now. */
      keep: () => (kept = JSON.parse(JSON.stringify(unfinished.now())) as typeof kept),
    };
  };
  return { rows, begin, kept: () => kept };
}

const finish = (input = 100, output = 10): Part => ({
  type: "finish",
  finishReason: { unified: "stop", raw: "stop" },
  usage: { inputTokens: { total: input }, outputTokens: { total: output } },
});
const text = (id: string, ...deltas: string[]): Part[] => [
  { type: "text-start", id },
  ...deltas.map((delta) => ({ type: "text-delta", id, delta })),
];
const whole = (id: string, ...deltas: string[]): Part[] => [
  ...text(id, ...deltas),
  { type: "text-end", id },
  finish(),
];

/** A model that streams these answers, one to each call. One without a finish never ends. */
function saying(...answers: readonly (readonly Part[] | Error)[]) {
  const asked: { readonly prompt: readonly Part[] }[] = [];
  const model = {
    specificationVersion: "v3" as const,
    provider: "scripted",
    modelId: "scripted",
    supportedUrls: {},
    doGenerate: () => Promise.reject(new Error("not asked for")),
    async doStream(options: { prompt: readonly Part[] }) {
      const parts = answers[asked.push(options) - 1]!;
      if (parts instanceof Error) throw parts;
      return {
        stream: new ReadableStream<Part>({
          start(controller) {
            controller.enqueue({ type: "stream-start", warnings: [] });
            for (const part of parts) controller.enqueue(part);
            if (parts.at(-1)?.type === "finish") controller.close();
          },
        }),
      };
    },
  };
  return { model: model as never, asked, prompts: () => asked.map(({ prompt }) => prompt) };
}

/** Runs an attempt, and notes the parts that the SDK gives. */
function hear(
  stream: typeof streamText,
  context: DurableContext,
  settings: object,
  options?: DurableOptions,
) {
  const heard: Part[] = [];
  const result = stream({
    ...(durable(context, settings, options) as { model: never }),
    prompt: "go",
    onError: () => {},
  });
  const ended = (async () => {
    for await (const part of result.fullStream as AsyncIterable<Part>) heard.push(part);
  })();
  return {
    heard,
    ended,
    text: () => heard.map((part) => (part.type === "text-delta" ? part["text"] : "")).join(""),
  };
}

const long = "word ".repeat(50);

describe.each(sdks)("a call that its process died in, with the AI SDK %s", (_, stream) => {
  /** The first attempt has said this, and is lost. */
  const interrupted = async (
    scene: ReturnType<typeof attempts>,
    settings: object,
    said: string,
    options?: DurableOptions,
  ) => {
    const first = scene.begin();
    const { text: soFar } = hear(stream, first, settings, options);
    await expect.poll(soFar).toBe(said);
    first.keep();
  };

  test("goes on with what it had said, as one text, in the answer as in the journal", async () => {
    const scene = attempts();
    const { model, prompts } = saying(text("a", long, "two "), whole("z", "three ", "four"));
    await interrupted(scene, { model }, `${long}two `);
    const second = scene.begin();
    const { heard, ended } = hear(stream, second, { model });
    await ended;
    const texts = heard.filter(({ type }) => type.startsWith("text-"));
    expect(texts.map(({ type, id, text: delta }) => [type, id, delta])).toEqual([
      ["text-start", "a", undefined],
      ["text-delta", "a", `${long}two three `],
      ["text-delta", "a", "four"],
      ["text-end", "a", undefined],
    ]);
    const [first, again] = prompts();
    expect(again!.slice(0, -2)).toEqual(first);
    expect(again!.slice(-2)).toMatchObject([
      { role: "assistant", content: [{ type: "text", text: `${long}two ` }] },
      { role: "user", content: [{ type: "text", text: expect.stringContaining("is missing") }] },
    ]);
    expect(second.settled).toHaveBeenCalledTimes(1);
    expect(second.unfinished.now()).toEqual({});
    const third = hear(stream, scene.begin(), { model });
    await third.ended;
    expect(third.text()).toBe(`${long}two three four`);
    expect(prompts()).toHaveLength(2);
  });

  test("says a word again that had begun, and nothing before it has", async () => {
    const scene = attempts();
    const { model, prompts } = saying(
      text("a", long, "gam"),
      text("z", "g"),
      text("z", "g", "amma ray"),
    );
    await interrupted(scene, { model }, `${long}gam`);
    const second = scene.begin();
    const { text: soFar } = hear(stream, second, { model });
    await expect.poll(prompts).toHaveLength(2);
    expect(JSON.stringify(prompts()[1]!.at(-1))).toContain('began with \\"gam\\"');
    expect(prompts()[1]!.at(-2)).toMatchObject({ content: [{ text: long }] });
    expect([soFar(), second.settled.mock.calls]).toEqual(["", []]);
    second.keep();
    const third = hear(stream, scene.begin(), { model });
    await expect.poll(third.text).toBe(`${long}gamma ray`);
  });

  test("loses nothing where the next process dies in it as well", async () => {
    const scene = attempts();
    const { model, prompts } = saying(text("a", long), text("b", "two "), whole("c", "three"));
    await interrupted(scene, { model }, long);
    await interrupted(scene, { model }, `${long}two `);
    const third = hear(stream, scene.begin(), { model });
    await third.ended;
    expect(third.text()).toBe(`${long}two three`);
    expect(prompts()[2]!.at(-2)).toMatchObject({ content: [{ text: `${long}two ` }] });
    expect(prompts()[2]).toHaveLength(prompts()[0]!.length + 2);
  });

  test("keeps reasoning that is no more than text", async () => {
    const scene = attempts();
    const thought: Part[] = [
      { type: "reasoning-start", id: "r" },
      { type: "reasoning-delta", id: "r", delta: "hm" },
      { type: "reasoning-end", id: "r" },
    ];
    const { model } = saying([...thought, ...text("a", long)], whole("z", "end"));
    await interrupted(scene, { model }, long);
    const { heard, ended, text: all } = hear(stream, scene.begin(), { model });
    await ended;
    expect(all()).toBe(`${long}end`);
    const types = heard.map(({ type }) => type).filter((type) => /^(text|reasoning)-/.test(type));
    expect(types.slice(0, 4)).toEqual([
      "reasoning-start",
      "reasoning-delta",
      "reasoning-end",
      "text-start",
    ]);
  });

  test("may end at once, or ask for a tool, which begins once the whole is stored", async () => {
    const scene = attempts();
    const call: Part = { type: "tool-call", toolCallId: "c", toolName: "look", input: "{}" };
    const { model } = saying(text("a", long, "last"), [call, finish()]);
    const seen: string[] = [];
    const execute = async () => void seen.push(...scene.rows.keys());
    const tools = { look: tool({ inputSchema: z.object({}), execute }) };
    await interrupted(scene, { model, tools }, `${long}last`);
    const { ended, text: all } = hear(stream, scene.begin(), { model, tools });
    await ended;
    expect([all(), seen]).toEqual([`${long}last`, ["model[1]"]]);
    const { content } = (
      JSON.parse(scene.rows.get("model[1]")!.value!) as { value: { content: Part[] } }
    ).value;
    expect(content).toMatchObject([{ type: "text", text: `${long}last` }, { type: "tool-call" }]);
  });

  test("counts what was used before, as far as that can be estimated", async () => {
    const scene = attempts();
    const { model } = saying(text("a", long), text("b", long), whole("c", "end"));
    await interrupted(scene, { model }, long);
    await interrupted(scene, { model }, long + long);
    await hear(stream, scene.begin(), { model }).ended;
    const { usage } = JSON.parse(scene.rows.get("model[1]")!.value!) as { usage: unknown };
    const [{ inputTokens, outputTokens, calls }] = usage as [Record<string, number>];
    expect(outputTokens).toBe(10 + Math.ceil((2 * long.length) / 4));
    // The second call was asked with all that the first had said.
    expect(inputTokens).toBeGreaterThan(100 + long.length / 4);
    expect(inputTokens).toBeLessThan(100 + long.length);
    expect(calls).toBe(1);
  });

  test("is asked for the rest again where that failed", async () => {
    const scene = attempts();
    const failed = new Error("overloaded");
    const { model, prompts } = saying(text("a", long), failed, whole("z", "end"));
    await interrupted(scene, { model }, long);
    const second = scene.begin();
    const failing = hear(stream, second, { model });
    await failing.ended;
    expect(failing.text()).toBe("");
    second.keep();
    const third = hear(stream, scene.begin(), { model });
    await third.ended;
    expect(third.text()).toBe(`${long}end`);
    expect(prompts()[2]).toEqual(prompts()[1]);
  });

  test("may think before it goes on, or after it has begun", async () => {
    const thought = (id: string): Part[] => [
      { type: "reasoning-start", id },
      { type: "reasoning-delta", id, delta: "hm" },
      { type: "reasoning-end", id },
    ];
    const scene = attempts();
    const { model } = saying(
      [...text("a", long, "gam"), ...thought("r")],
      [...thought("r"), ...whole("z", "g", "amma")],
    );
    await interrupted(scene, { model }, `${long}gam`);
    const { heard, ended, text: all } = hear(stream, scene.begin(), { model });
    await ended;
    expect(all()).toBe(`${long}gamma`);
    const types = heard.map(({ type }) => type).filter((type) => /-(start|end)$/.test(type));
    expect(types.filter((type) => /^(text|reasoning)-/.test(type))).toEqual([
      "text-start",
      "reasoning-start",
      "reasoning-end",
      "text-end",
    ]);
  });

  const call: Part = { type: "tool-input-start", id: "c", toolName: "look" };
  const signed: Part[] = [
    { type: "reasoning-start", id: "r" },
    { type: "reasoning-delta", id: "r", delta: "hm" },
    { type: "reasoning-end", id: "r", providerMetadata: { some: { signature: "x" } } },
  ];
  const json = { responseFormat: { type: "json" } };
  test.each<
    [string, readonly Part[], { options?: DurableOptions; more?: object; keeps?: boolean }]
  >([
    ["has said less than 200 characters", text("a", "little"), {}],
    ["has begun a tool's input", [...text("a", long), call], {}],
    ["has only thought", signed.with(2, { type: "reasoning-end", id: "r" }), {}],
    ["has thoughts that are signed", [...signed, ...text("a", long)], {}],
    ["is to be made again", text("a", long), { options: { interrupted: "again" } }],
    ["is of a task, which keeps nothing", text("a", long), { keeps: false }],
  ])("is made again where it %s", async (_what, parts, { options, keeps = true }) => {
    const scene = attempts({ keeps });
    const { model, prompts } = saying(parts, whole("z", "other"));
    const first = scene.begin();
    const { heard } = hear(stream, first, { model }, options);
    const last = parts.at(-1)!.type;
    await expect.poll(() => heard.map(({ type }) => type)).toContain(last);
    first.keep();
    expect(scene.kept()).toEqual({});
    const second = hear(stream, scene.begin(), { model }, options);
    await second.ended;
    expect(second.text()).toBe("other");
    expect(prompts()[1]).toEqual(prompts()[0]);
  });

  test("is made again where its text is to be parsed", async () => {
    const scene = attempts();
    const { model, prompts } = saying(text("a", long), whole("z", "{}"));
    const asJson = {
      model: {
        ...(model as { doStream(options: object): unknown }),
        doStream: (options: object) =>
          (model as { doStream(o: object): unknown }).doStream(options),
      },
    };
    const first = scene.begin();
    const wrapped = durable(first, asJson) as unknown as typeof asJson;
    const { stream: parts } = (await wrapped.model.doStream({ prompt: [], ...json })) as {
      stream: ReadableStream<Part>;
    };
    const reader = parts.getReader();
    for (let read = 0; read < 3; read++) await reader.read();
    first.keep();
    expect(scene.kept()).toEqual({});
    expect(prompts()).toHaveLength(1);
  });

  test("goes on from the first word on where it is told to", async () => {
    const scene = attempts();
    const { model } = saying(text("a", "one "), whole("z", "two"));
    const options = { interrupted: "continue" } as const;
    await interrupted(scene, { model }, "one ", options);
    const second = hear(stream, scene.begin(), { model }, options);
    await second.ended;
    expect(second.text()).toBe("one two");
  });

  test("is made again within a tool, whose words no page has", async () => {
    const scene = attempts();
    const inner = saying(text("a", long), whole("z", "a poem"));
    const use: Part = { type: "tool-call", toolCallId: "c", toolName: "write", input: "{}" };
    const outer = saying([use, finish()]);
    const tools = {
      write: tool({
        inputSchema: z.object({}),
        execute: async (_input, options) =>
          streamText({ ...durable(stepOf(options), { model: inner.model }), prompt: "write" }).text,
      }),
    };
    const settings = { model: outer.model, tools };
    const first = scene.begin();
    hear(stream, first, settings);
    await expect.poll(inner.prompts).toHaveLength(1);
    first.keep();
    await hear(stream, scene.begin(), settings).ended;
    expect(inner.prompts()[1]).toEqual(inner.prompts()[0]);
  });
});

test("what becomes of an interrupted call is one of two words", () => {
  const { step } = attempts().begin();
  const { model } = saying();
  const options = { interrupted: "resume" as never };
  expect(() => durable({ step }, { model }, options)).toThrow(
    /"continue" or "again", not "resume"/,
  );
});
