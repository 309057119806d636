import {
  createUIMessageStream,
  isStepCount,
  jsonSchema,
  JsonToSseTransformStream,
  safeValidateUIMessages,
  streamText,
  tool,
  toUIMessageStream,
  type UIMessageChunk,
} from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { describe, expect, test } from "vitest";
import { createAssembler } from "./assembler/assembler.ts";
import { type Chunk, withMessageId } from "./chunk.ts";
import type { UIMessage } from "./message.ts";
import { assembledByAi, plain } from "./contract/oracle.ts";
import { createBodyReader } from "./stream.ts";

type ModelPart =
  Awaited<ReturnType<MockLanguageModelV4["doStream"]>>["stream"] extends ReadableStream<infer Part>
    ? Part
    : never;

const messageId = "answer";
const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
const finish = (unified: "stop" | "tool-calls" | "error"): ModelPart => ({
  type: "finish",
  finishReason: { unified, raw: unified },
  usage,
});
const said = (...deltas: string[]): ModelPart[] => [
  { type: "text-start", id: "1" },
  ...deltas.map((delta): ModelPart => ({ type: "text-delta", id: "1", delta })),
  { type: "text-end", id: "1" },
];
const called: ModelPart[] = [
  { type: "tool-input-start", id: "c", toolName: "weather" },
  { type: "tool-input-delta", id: "c", delta: '{"city":' },
  { type: "tool-input-delta", id: "c", delta: '"Paris"}' },
  { type: "tool-input-end", id: "c" },
  { type: "tool-call", toolCallId: "c", toolName: "weather", input: '{"city":"Paris"}' },
  finish("tool-calls"),
];

/** What a model streams, step by step, as the chunks that an agent's body has of it. */
function answered(
  steps: readonly (readonly ModelPart[])[],
  {
    needsApproval = false,
    abortSignal,
  }: { needsApproval?: boolean; abortSignal?: AbortSignal } = {},
): ReadableStream<UIMessageChunk> {
  let step = 0;
  const result = streamText({
    model: new MockLanguageModelV4({
      doStream: () =>
        Promise.resolve({ stream: convertArrayToReadableStream([...(steps[step++] ?? [])]) }),
    }),
    prompt: "What is the weather?",
    tools: {
      weather: tool({
        inputSchema: jsonSchema<{ city: string }>({ type: "object" }),
        needsApproval,
        execute: ({ city }) => `sunny in ${city}`,
      }),
    },
    stopWhen: isStepCount(5),
    onError: () => undefined,
    ...(abortSignal === undefined ? {} : { abortSignal }),
  });
  return toUIMessageStream({ stream: result.stream, onError: String });
}

/** Reads a body as we do, and has both make a message of it. */
async function recorded(stream: ReadableStream<UIMessageChunk>) {
  const reader = createBodyReader({ format: "sse" });
  const chunks: Chunk[] = [];
  const take = (items: ReturnType<typeof reader.push>) => {
    for (const item of items)
      if (item.type === "chunk") chunks.push(withMessageId(item.chunk, messageId));
  };
  const body = stream
    .pipeThrough(new JsonToSseTransformStream())
    .pipeThrough(new TextEncoderStream());
  for await (const bytes of body) take(reader.push(bytes));
  take(reader.end());

  const assembler = createAssembler({ messageId });
  const errors = chunks.flatMap((chunk) => assembler.push(chunk).error ?? []);
  expect(errors).toEqual([]);
  const theirs = await assembledByAi(chunks, { messageId });
  expect(plain(assembler.message())).toEqual(theirs.message);
  return { assembler, types: chunks.map(({ type }) => type) };
}

const textOf = ({ parts }: UIMessage) =>
  parts.flatMap(({ text }) => (typeof text === "string" ? [text] : [])).join("");

describe("an answer by streamText", () => {
  test("of text and reasoning", async () => {
    const reasoning: ModelPart[] = [
      { type: "reasoning-start", id: "r" },
      { type: "reasoning-delta", id: "r", delta: "Hm." },
      { type: "reasoning-end", id: "r" },
    ];
    const { assembler } = await recorded(
      answered([[...reasoning, ...said("It ", "is."), finish("stop")]]),
    );
    expect(assembler.message().parts).toMatchObject([
      { type: "step-start" },
      { type: "reasoning", text: "Hm.", state: "done" },
      { type: "text", text: "It is.", state: "done" },
    ]);
    expect(assembler.outcome).toEqual({ type: "finish", finishReason: "stop" });
  });

  test("with a tool's input, output, and the text after it", async () => {
    const { assembler } = await recorded(answered([called, [...said("Sunny."), finish("stop")]]));
    const message = assembler.message();
    expect(message.parts[1]).toMatchObject({ state: "output-available", output: "sunny in Paris" });
    expect(await safeValidateUIMessages({ messages: [message] })).toMatchObject({ success: true });
  });

  test("that waits for an approval", async () => {
    const { assembler } = await recorded(answered([called], { needsApproval: true }));
    expect(assembler.message().parts[1]).toMatchObject({ state: "approval-requested" });
    expect(assembler.outcome).toEqual({ type: "finish", finishReason: "tool-calls" });
    expect(assembler.close("finish")).toEqual([]);
  });

  test("that breaks in the middle", async () => {
    const broken: ModelPart = { type: "error", error: new Error("overloaded") };
    const start = said("It is").slice(0, 2);
    const { assembler } = await recorded(answered([[...start, broken, finish("error")]]));
    expect(assembler.outcome).toMatchObject({ type: "error" });
    expect(assembler.close("finish").map(({ type }) => type)).toEqual(["text-end", "error"]);
    expect(textOf(assembler.message())).toBe("It is");
  });

  test("that breaks before its first chunk", async () => {
    const model = new MockLanguageModelV4({ doStream: () => Promise.reject(new Error("no key")) });
    const result = streamText({ model, prompt: "Hi", maxRetries: 0, onError: () => undefined });
    const { assembler } = await recorded(
      toUIMessageStream({ stream: result.stream, onError: String }),
    );
    expect(assembler.outcome).toMatchObject({ type: "error" });
    expect(textOf(assembler.message())).toBe("");
  });

  test("that is aborted", async () => {
    const abort = new AbortController();
    const stream = answered([[...said("It ", "is "), finish("stop")]], {
      abortSignal: abort.signal,
    });
    const cut = stream.pipeThrough(
      new TransformStream<UIMessageChunk, UIMessageChunk>({
        transform(chunk, controller) {
          if (chunk.type === "text-delta") abort.abort("enough");
          controller.enqueue(chunk);
        },
      }),
    );
    const { assembler, types } = await recorded(cut);
    expect(types.at(-1)).toBe("abort");
    expect(assembler.outcome).toMatchObject({ type: "abort" });
    expect(assembler.close("finish").at(-1)?.type).toBe("abort");
  });

  test("of two streams that are merged", async () => {
    const merged = createUIMessageStream({
      execute: ({ writer }) => {
        writer.merge(answered([[...said("One."), finish("stop")]]));
        writer.merge(answered([called, [...said("Two."), finish("stop")]]));
      },
    });
    const { assembler, types } = await recorded(merged);
    expect(types.filter((type) => type === "finish")).toHaveLength(2);
    expect(assembler.outcome).toMatchObject({ type: "finish" });
  });
});
