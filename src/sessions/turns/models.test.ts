import {
  convertToModelMessages,
  createUIMessageStreamResponse,
  pipeUIMessageStreamToResponse,
  streamText,
  tool,
  toUIMessageStream,
  type ToolSet,
  type UIMessage as SdkMessage,
} from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { Webhook } from "standardwebhooks";
import { afterEach, describe, expect, test } from "vitest";
import { z } from "zod";
import { until } from "../../base/contract/movable-clock.ts";
import type { UIMessage } from "../../protocol/message.ts";
import { agent } from "../agents/agent.ts";
import type { AgentOptions } from "../agents/options.ts";
import type { AgentRequest } from "../../protocol/agent-http.ts";
import {
  createRunnerHarness,
  type RunnerHarness,
  serve,
  type TestServer,
  replyText,
} from "../contract/turns-harness.ts";
import type { AgentSpec } from "../agents/spec.ts";

const secret = `whsec_${Buffer.alloc(32, 5).toString("base64")}`;
const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
const finish = (unified: "stop" | "tool-calls") => ({
  type: "finish",
  finishReason: { unified, raw: unified },
  usage,
});
const begin = { type: "stream-start", warnings: [] };
const text = (said: string) => [
  { type: "text-start", id: "1" },
  ...said.split(/(?<= )/).map((delta) => ({ type: "text-delta", id: "1", delta })),
  { type: "text-end", id: "1" },
];
const call = {
  type: "tool-call",
  toolCallId: "call-1",
  toolName: "weather",
  input: '{"at":"sea"}',
};

/** A model that says these things, one list for each time that it is asked. */
function modelThat(...answers: object[][]): MockLanguageModelV4 {
  let asked = 0;
  return new MockLanguageModelV4({
    doStream: async () => ({
      stream: convertArrayToReadableStream(answers[asked++] ?? []) as never,
    }),
  });
}

type Answering = (messages: readonly UIMessage[], signal: AbortSignal) => Promise<StreamText>;
type StreamText = ReturnType<typeof streamText<ToolSet>>;

function answeringWith(
  model: MockLanguageModelV4,
  { tools = {} }: { tools?: ToolSet } = {},
): Answering {
  return async (messages, abortSignal) =>
    streamText({
      model,
      abortSignal,
      maxRetries: 0,
      messages: await convertToModelMessages([...messages] as unknown as SdkMessage[]),
      tools,
      onError: () => {},
    });
}

const open: AsyncDisposable[] = [];
const scenes: RunnerHarness[] = [];
afterEach(async () => {
  for (const scene of scenes.splice(0)) await scene.runner.stop({ waitMs: 0 });
  for (const each of open.splice(0)) await each[Symbol.asyncDispose]();
});

/** The same agent in this process, and behind a URL as its authors would serve it. */
const places: Record<
  string,
  (
    answering: Answering,
    options?: AgentOptions,
  ) => Promise<{ spec: AgentSpec; server?: TestServer }>
> = {
  "in this process": async (answering, options = {}) => ({
    spec: agent("helper", options, ({ messages, signal }) => answering(messages, signal)),
  }),
  "in this process, as a stream": async (answering, options = {}) => ({
    spec: agent("helper", options, async ({ messages, signal }) =>
      toUIMessageStream({ stream: (await answering(messages, signal)).stream }),
    ),
  }),
  "in this process, as a response": async (answering, options = {}) => ({
    spec: agent("helper", options, async ({ messages, signal }) =>
      createUIMessageStreamResponse({
        stream: toUIMessageStream({ stream: (await answering(messages, signal)).stream }),
      }),
    ),
  }),
  "behind a URL": async (answering, options = {}) => {
    const server = await serve(async (response, body) => {
      const { headers } = server.requests.at(-1)!;
      const request = new Webhook(secret).verify(body, headers as Record<string, string>);
      const gone = new AbortController();
      response.on("close", () => gone.abort());
      const { stream } = await answering((request as AgentRequest).messages, gone.signal);
      await pipeUIMessageStreamToResponse({ response, stream: toUIMessageStream({ stream }) });
    });
    open.push(server);
    const url = { url: server.url, allowPrivate: true, secret };
    return { spec: agent("helper", { ...options, ...url }), server };
  },
};

describe.each(Object.entries(places))("a model of the AI SDK %s", (_, place) => {
  const sceneOf = async (answering: Answering, options?: AgentOptions) => {
    const { spec } = await place(answering, { backoff: { baseMs: 1 }, ...options });
    const scene = createRunnerHarness(spec);
    scenes.push(scene);
    return scene;
  };

  test("streams text", async () => {
    const model = modelThat([begin, ...text("hello there you"), finish("stop")]);
    const scene = await sceneOf(answeringWith(model));
    expect(await scene.answer()).toMatchObject({
      outcome: "completed",
      parts: [{ type: "step-start" }, { type: "text", text: "hello there you", state: "done" }],
    });
    expect(scene.live[0]!.chunks[0]).toMatchObject({ type: "start", messageId: "answer" });
    expect(JSON.stringify(model.doStreamCalls[0]!.prompt)).toContain("said 1");
  });

  test("thinks aloud", async () => {
    const thought = [
      { type: "reasoning-start", id: "r" },
      { type: "reasoning-delta", id: "r", delta: "hm" },
      { type: "reasoning-end", id: "r" },
    ];
    const model = modelThat([begin, ...thought, ...text("yes"), finish("stop")]);
    expect((await (await sceneOf(answeringWith(model))).answer()).parts).toMatchObject([
      { type: "step-start" },
      { type: "reasoning", text: "hm", state: "done" },
      { type: "text", text: "yes" },
    ]);
  });

  test("calls a tool", async () => {
    const tools = {
      weather: tool({ inputSchema: z.object({ at: z.string() }), execute: async () => "calm" }),
    };
    const model = modelThat([begin, call, finish("tool-calls")]);
    expect(await (await sceneOf(answeringWith(model, { tools }))).answer()).toMatchObject({
      outcome: "completed",
      parts: [
        { type: "step-start" },
        {
          type: "tool-weather",
          toolCallId: "call-1",
          state: "output-available",
          input: { at: "sea" },
          output: "calm",
        },
      ],
    });
  });

  test("requests an approval, and goes on when it has the answer", async () => {
    const tools = {
      weather: tool({
        inputSchema: z.object({ at: z.string() }),
        needsApproval: true,
        execute: async () => "calm",
      }),
    };
    const model = modelThat(
      [begin, call, finish("tool-calls")],
      [begin, ...text("it is calm"), finish("stop")],
    );
    const scene = await sceneOf(answeringWith(model, { tools }));
    const asked = await scene.answer();
    const part = asked.parts.find(({ type }) => type === "tool-weather")!;
    expect(part).toMatchObject({ state: "approval-requested" });
    const { id: approvalId } = part["approval"] as { id: string };
    await scene.store([
      { messageId: "answer", role: "assistant", author: "helper", ...asked },
      {
        kind: "tool_result",
        messageId: "allowed",
        parts: [],
        results: {
          messageId: "answer",
          results: [{ toolCallId: "call-1", approved: true, approvalId }],
        },
      },
    ]);
    const reply = await scene.answer({ trigger: "tool_result", replaces: 2 });
    expect(reply.outcome).toBe("completed");
    expect(replyText(reply)).toBe("it is calm");
    expect(reply.parts.filter(({ type }) => type === "tool-weather")).toMatchObject([
      { state: "output-available", output: "calm" },
    ]);
  });

  test("fails before its first chunk", async () => {
    const model = new MockLanguageModelV4({
      doStream: async () => {
        throw new Error("password is hunter2");
      },
    });
    const scene = await sceneOf(answeringWith(model));
    const reply = await scene.answer();
    expect(reply).toMatchObject({ outcome: "failed", parts: [], error: { code: "agent_failed" } });
    expect(JSON.stringify(scene.told)).not.toContain("hunter2");
  });

  test("fails in the middle", async () => {
    const broken = { type: "error", error: new Error("password is hunter2") };
    const model = modelThat([begin, ...text("half").slice(0, 2), broken]);
    const scene = await sceneOf(answeringWith(model));
    expect(await scene.answer()).toMatchObject({
      outcome: "cut",
      parts: [{ type: "step-start" }, { type: "text", text: "half", state: "done" }],
      error: { code: "agent_failed" },
    });
    expect(JSON.stringify([scene.told, scene.live])).not.toContain("hunter2");
    // User interfaces stop listening at an error, so what ends the text has to be before it.
    const types = scene.live.flatMap(({ chunks }) => chunks).map(({ type }) => type);
    expect(types.filter((type) => type === "error")).toHaveLength(1);
    expect(types.at(-1)).toBe("error");
    expect(types).toContain("text-end");
  });

  test("is aborted by a stop, and what it streamed is kept", async () => {
    let heard: AbortSignal | undefined;
    const model = new MockLanguageModelV4({
      doStream: async ({ abortSignal }) => {
        heard = abortSignal;
        const stream = new ReadableStream({
          start(controller) {
            for (const piece of [begin, ...text("half").slice(0, 2)]) controller.enqueue(piece);
            abortSignal?.addEventListener("abort", () => controller.error(abortSignal.reason));
          },
        });
        return { stream: stream as never };
      },
    });
    const scene = await sceneOf(answeringWith(model));
    await scene.begin();
    await until("it speaks", () => JSON.stringify(scene.live).includes("half"));
    scene.runner.abort(scene.runner.running()[0]!, { keep: true });
    expect(await scene.reply()).toMatchObject({
      outcome: "stopped",
      parts: [{ type: "step-start" }, { type: "text", text: "half", state: "done" }],
    });
    await until("it has heard", () => heard?.aborted);
  });
});
