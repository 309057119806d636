import {
  APICallError,
  embed,
  type EmbeddingModelMiddleware,
  generateText,
  type ImageModelMiddleware,
  type LanguageModelMiddleware,
  streamText,
  wrapEmbeddingModel,
  wrapLanguageModel,
} from "ai";
import {
  convertArrayToReadableStream,
  MockEmbeddingModelV4,
  MockLanguageModelV4,
  simulateReadableStream,
} from "ai/test";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type MovableClock, movableClock, until } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import { estimateCallTokens, usedTokens } from "./model-middleware.ts";
import { runInThrottleScope } from "./scope.ts";
import { declarationOf, type Throttle, throttle } from "./throttle.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "./registry.ts";

let clock: MovableClock;
let throttles: ThrottleRegistry;

beforeEach(() => {
  clock = movableClock();
  throttles = createThrottleRegistry({ clock, random: seededRandom(1) });
});
afterEach(() => throttles.close());

const inPod = <Result>(fn: () => Result) => runInThrottleScope({ throttles }, fn);
const limiterOf = (api: Throttle) => throttles.of(declarationOf(api).declared);
const outcomes = (api: Throttle) => limiterOf(api).snapshot().outcomes;
const inFlight = (api: Throttle) => limiterOf(api).demand().inFlight;

const usage = {
  inputTokens: { total: 30, noCache: 30, cacheRead: undefined, cacheWrite: undefined },
  outputTokens: { total: 70, text: 70, reasoning: undefined },
};
const finishReason = { unified: "stop" as const, raw: "stop" };
const answer = {
  content: [{ type: "text" as const, text: "hello" }],
  finishReason,
  usage,
  warnings: [],
};
const parts = [
  { type: "stream-start" as const, warnings: [] },
  { type: "text-start" as const, id: "1" },
  { type: "text-delta" as const, id: "1", delta: "hel" },
  { type: "text-delta" as const, id: "1", delta: "lo" },
  { type: "text-end" as const, id: "1" },
  { type: "finish" as const, finishReason, usage },
];
const refusal = (statusCode: number) =>
  new APICallError({
    message: `status ${statusCode}`,
    url: "http://127.0.0.1/v1",
    requestBodyValues: {},
    statusCode,
    responseHeaders: {},
    isRetryable: true,
  });

function modelOf(api: Throttle, model: MockLanguageModelV4) {
  return wrapLanguageModel({ model, middleware: api.middleware() });
}

describe("the middleware for models", () => {
  test("is middleware to the AI SDK, of all three kinds", () => {
    const middleware = throttle("api").middleware();
    const language: LanguageModelMiddleware = middleware;
    const embedding: EmbeddingModelMiddleware = middleware;
    const image: ImageModelMiddleware = middleware;
    expect([language.wrapStream, embedding.wrapEmbed, image.wrapGenerate]).not.toContain(undefined);
  });

  test("holds a permit for as long as a model generates, and gives its answer", async () => {
    const api = throttle("api");
    const model = new MockLanguageModelV4({
      doGenerate: async () => {
        expect(inFlight(api)).toBe(1);
        return answer;
      },
    });
    const { text } = await inPod(() => generateText({ model: modelOf(api, model), prompt: "hi" }));
    expect(text).toBe("hello");
    expect(inFlight(api)).toBe(0);
    expect(outcomes(api).success).toBe(1);
  });

  test("counts what models report of their calls, once for one that is wrapped twice", async () => {
    const api = throttle("api");
    const other = throttle("account");
    const model = new MockLanguageModelV4({
      modelId: "small",
      doGenerate: async () => ({ ...answer, usage: { ...usage } }),
      doStream: async () => ({ stream: convertArrayToReadableStream(parts) }),
    });
    const twice = wrapLanguageModel({
      model: modelOf(api, model),
      middleware: [api.middleware(), other.middleware()],
    });
    await inPod(() => generateText({ model: twice, prompt: "hi" }));
    await inPod(() => api.run(() => generateText({ model: twice, prompt: "hi" })));
    await inPod(() => streamText({ model: modelOf(api, model), prompt: "hi" }).text);
    const counted = (calls: number) => [
      { model: "small", input: 30 * calls, output: 70 * calls, cached: 0 },
    ];
    expect(limiterOf(api).usage().tokens).toEqual(counted(3));
    expect(limiterOf(other).usage().tokens).toEqual(counted(2));
  });

  test("acquires a permit for each of the SDK's own retries", async () => {
    const api = throttle("api", { initial: 1, max: 1, mode: "local" });
    let attempts = 0;
    const model = new MockLanguageModelV4({
      doGenerate: async () => {
        if (++attempts === 1) throw refusal(500);
        return answer;
      },
    });
    const { text } = await inPod(() =>
      generateText({ model: modelOf(api, model), prompt: "hi", maxRetries: 1 }),
    );
    expect(text).toBe("hello");
    expect(outcomes(api)).toMatchObject({ server_error: 1, success: 1 });
    expect(inFlight(api)).toBe(0);
  });

  test("holds its permit until a stream has ended, and knows when the first token came", async () => {
    const api = throttle("api");
    let go: () => void = () => {};
    const model = new MockLanguageModelV4({
      doStream: async () => ({
        stream: new ReadableStream({
          async start(controller) {
            for (const part of parts.slice(0, 3)) controller.enqueue(part);
            await new Promise<void>((resolve) => (go = resolve));
            for (const part of parts.slice(3)) controller.enqueue(part);
            controller.close();
          },
        }),
      }),
    });
    const result = inPod(async () => streamText({ model: modelOf(api, model), prompt: "hi" }));
    const texts = (await result).textStream[Symbol.asyncIterator]();
    expect((await texts.next()).value).toBe("hel");
    expect(inFlight(api)).toBe(1);
    await clock.advance(400);
    go();
    expect((await texts.next()).value).toBe("lo");
    expect((await texts.next()).done).toBe(true);
    expect(inFlight(api)).toBe(0);
    const { outcomes: ended, latencyMs, firstTokenMs } = limiterOf(api).snapshot();
    expect(ended.success).toBe(1);
    expect(latencyMs.p95).toBeGreaterThanOrEqual(400);
    expect(firstTokenMs.p95).toBeLessThan(400);
  });

  test("gives it back for a stream that isn't read", async () => {
    const api = throttle("api");
    const model = new MockLanguageModelV4({
      doStream: async () => ({ stream: convertArrayToReadableStream(parts) }),
    });
    const wrapped = modelOf(api, model);
    await inPod(() => wrapped.doStream({ prompt: [] }));
    await until("the permit is back", () => inFlight(api) === 0);
    expect(outcomes(api).success).toBe(1);
  });

  test("gives it back for a stream that is cancelled or fails, and records how it failed", async () => {
    const api = throttle("api", { initial: 8 });
    const streams = [
      new ReadableStream(),
      convertArrayToReadableStream([...parts.slice(0, 1), { type: "error", error: refusal(529) }]),
      new ReadableStream({ pull: (controller) => controller.error(refusal(500)) }),
    ];
    const model = new MockLanguageModelV4({
      doStream: async () => ({ stream: streams.shift()! as never }),
    });
    const wrapped = modelOf(api, model);
    const open = async () => (await inPod(() => wrapped.doStream({ prompt: [] }))).stream;
    await (await open()).cancel();
    expect(outcomes(api)).toMatchObject({ ignored: 1 });
    for await (const part of await open()) void part;
    expect(outcomes(api)).toMatchObject({ throttled: 1 });
    await expect((await open()).getReader().read()).rejects.toThrow("status 500");
    expect(outcomes(api)).toMatchObject({ ignored: 1, throttled: 1, server_error: 1, success: 0 });
    expect(inFlight(api)).toBe(0);
  });

  test("aborts the model when its time is up", async () => {
    const api = throttle("api", { callTimeoutMs: 3_000 });
    const model = new MockLanguageModelV4({
      doGenerate: ({ abortSignal }) =>
        new Promise((_, reject) =>
          abortSignal!.addEventListener("abort", () => reject(abortSignal!.reason)),
        ),
    });
    const wrapped = modelOf(api, model);
    const late = inPod(() => wrapped.doGenerate({ prompt: [] })).catch((error: unknown) => error);
    await clock.advance(3_000);
    expect(await late).toMatchObject({ code: "timeout" });
    expect(outcomes(api).timeout).toBe(1);
  });

  test("aborts the model when its caller gives up", async () => {
    const api = throttle("api");
    const stop = new AbortController();
    const model = new MockLanguageModelV4({
      doGenerate: ({ abortSignal }) =>
        new Promise((_, reject) => {
          abortSignal!.addEventListener("abort", () => reject(abortSignal!.reason));
          stop.abort(new Error("enough"));
        }),
    });
    const wrapped = modelOf(api, model);
    await expect(
      inPod(() => wrapped.doGenerate({ prompt: [], abortSignal: stop.signal })),
    ).rejects.toThrow("enough");
    expect(outcomes(api)).toMatchObject({ ignored: 1 });
  });

  test("keeps a limit for each model, where `key` returns it", async () => {
    const api = throttle("api");
    for (const modelId of ["large", "small"]) {
      const model = new MockLanguageModelV4({ modelId, doGenerate: async () => answer });
      const middleware = api.middleware({ key: (each) => each.modelId });
      const wrapped = wrapLanguageModel({ model, middleware });
      await inPod(() => generateText({ model: wrapped, prompt: "hi" }));
    }
    expect(throttles.all().map(({ key }) => key)).toEqual(["large", "small"]);
  });

  test("takes tokens by estimate, and settles what was really used", async () => {
    const api = throttle("api", { bucket: { unit: "tokens", refillPerS: 1_000, burstS: 10 } });
    const model = new MockLanguageModelV4({
      doGenerate: async () => {
        expect(limiterOf(api).snapshot().bucket?.available).toBe(10_000 - 500 - 2);
        return answer;
      },
      doStream: async () => ({ stream: simulateReadableStream({ chunks: parts }) }),
    });
    const wrapped = modelOf(api, model);
    const settings = { model: wrapped, prompt: "12345678", maxOutputTokens: 500 };
    await inPod(() => generateText(settings));
    expect(limiterOf(api).snapshot().bucket?.available).toBe(10_000 - 100);
    await (
      await inPod(async () => streamText(settings))
    ).text;
    expect(limiterOf(api).snapshot().bucket?.available).toBe(10_000 - 200);
  });

  test("serves embeddings too", async () => {
    const api = throttle("api", { bucket: { unit: "tokens", refillPerS: 1_000, burstS: 10 } });
    const model = new MockEmbeddingModelV4({
      doEmbed: async () => ({ embeddings: [[1, 2]], usage: { tokens: 40 }, warnings: [] }),
    });
    const wrapped = wrapEmbeddingModel({ model, middleware: api.middleware() });
    const { embedding } = await inPod(() => embed({ model: wrapped, value: "some text" }));
    expect(embedding).toEqual([1, 2]);
    expect(outcomes(api).success).toBe(1);
    expect(limiterOf(api).snapshot().bucket?.available).toBe(10_000 - 40);
  });

  test("and a fetch inside of it are one call", async () => {
    const api = throttle("api", { initial: 1, max: 1 });
    const send = api.fetchWith({ fetch: async () => new Response("hello") });
    const model = new MockLanguageModelV4({
      doGenerate: async () => {
        const text = await (await send("http://127.0.0.1/v1")).text();
        return { ...answer, content: [{ type: "text", text }] };
      },
    });
    await inPod(() => generateText({ model: modelOf(api, model), prompt: "hi" }));
    expect(outcomes(api).success).toBe(1);
  });
});

describe("tokens", () => {
  test.each([
    [{ usage }, 100],
    [{ usage: { inputTokens: 3, outputTokens: 4, totalTokens: 7 } }, 7],
    [{ usage: { inputTokens: { total: undefined }, outputTokens: { total: 4 } } }, 4],
    [{ usage: { tokens: 12 } }, 12],
    [{ usage: { inputTokens: undefined } }, undefined],
    [{}, undefined],
    [undefined, undefined],
  ])("of %o are %s", (result, tokens) => {
    expect(usedTokens(result)).toBe(tokens);
  });

  test("are guessed from text, and not from what images are encoded as", () => {
    const prompt = [
      { role: "system", content: "12345678" },
      {
        role: "user",
        content: [
          { type: "text", text: "1234" },
          { type: "file", mediaType: "image/png", data: "x".repeat(100_000) },
        ],
      },
    ];
    expect(estimateCallTokens({ prompt }, 1_000)).toBe(3 + 1_000);
    expect(estimateCallTokens({ prompt, maxOutputTokens: 50 }, 1_000)).toBe(53);
    expect(estimateCallTokens({ values: ["12345678", "1234"] }, 1_000)).toBe(3);
  });
});

describe("what a model's answers state about limits", () => {
  const headers = {
    "anthropic-ratelimit-requests-limit": "600",
    "anthropic-ratelimit-requests-remaining": "0",
    "anthropic-ratelimit-requests-reset": "2030-01-01T00:00:00Z",
  };
  const prompt = "hello";

  test("is heeded where it generates", async () => {
    const api = throttle("api", { initial: 9 });
    const model = new MockLanguageModelV4({ doGenerate: { ...answer, response: { headers } } });
    await inPod(() => generateText({ model: modelOf(api, model), prompt }));
    expect(limiterOf(api).findRefusal()).toMatchObject({ by: "bucket" });
  });

  test("is heeded where it streams", async () => {
    const api = throttle("api", { initial: 9 });
    const stream = convertArrayToReadableStream(parts);
    const model = new MockLanguageModelV4({ doStream: { stream, response: { headers } } });
    await inPod(() => streamText({ model: modelOf(api, model), prompt }).text);
    expect(limiterOf(api).findRefusal()).toMatchObject({ by: "bucket" });
  });

  test("is heeded where it fails", async () => {
    const api = throttle("api", { initial: 9 });
    const error = Object.assign(refusal(500), { responseHeaders: headers });
    const model = new MockLanguageModelV4({ doGenerate: () => Promise.reject(error) });
    const failing = inPod(() =>
      generateText({ model: modelOf(api, model), prompt, maxRetries: 0 }),
    );
    await expect(failing).rejects.toThrow("status 500");
    expect(limiterOf(api).findRefusal()).toMatchObject({ by: "bucket" });
  });
});
