import { createUIMessageStream, createUIMessageStreamResponse, streamText } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { abort } from "../base/errors.ts";
import { movableClock, eventLoopTurns, until } from "../base/contract/movable-clock.ts";
import { agentRequest, errorIn, requestOf, readAnswer, secret } from "./contract/requests.ts";
import { type AgentHandlerOptions, type AnswerContext, createAgentHandler } from "./handler.ts";

type Given = Partial<AgentHandlerOptions> & Pick<AgentHandlerOptions, "answer">;
const handlerOf = (given: Given) => createAgentHandler({ secret, ...given });
const ask = (answer: Given["answer"], rest: Partial<Given> = {}) =>
  handlerOf({ answer, ...rest })(requestOf());

const text = (said: string, id = "text-1") => [
  { type: "text-start", id },
  { type: "text-delta", id, delta: said },
  { type: "text-end", id },
];
const whole = [{ type: "start" }, ...text("hello"), { type: "finish" }];

let errors: ReturnType<typeof vi.spyOn>;
beforeEach(() => {
  errors = vi.spyOn(console, "error").mockImplementation(() => {});
});
afterEach(() => errors.mockRestore());

describe("an answer", () => {
  test("is streamed as the AI SDK streams, to its end", async () => {
    const response = await ask(() => "hello");
    expect(response.status).toBe(200);
    expect(Object.fromEntries(response.headers)).toMatchObject({
      "content-type": expect.stringContaining("text/event-stream"),
      "x-vercel-ai-ui-message-stream": "v1",
      "cache-control": expect.stringContaining("no-cache"),
      "x-accel-buffering": "no",
    });
    expect(await readAnswer(response)).toEqual({ chunks: whole, done: true });
  });

  test.each<[string, Given["answer"]]>([
    ["text", async () => "hello"],
    ["chunks", () => text("hello")],
    [
      "text of a generator",
      async function* () {
        yield "hello";
      },
    ],
    [
      "chunks of a generator, from `start` to `finish`",
      async function* () {
        yield* whole;
      },
    ],
    ["a stream", () => ReadableStream.from(text("hello"))],
    [
      "a Response",
      () =>
        createUIMessageStreamResponse({
          stream: ReadableStream.from(whole) as ReadableStream<never>,
        }),
    ],
  ])("may be %s", async (_, answer) => {
    expect(await readAnswer(await ask(answer))).toEqual({ chunks: whole, done: true });
  });

  test("may be a message, or a stream that the AI SDK has made", async () => {
    const message = {
      id: "m",
      role: "assistant",
      parts: [{ type: "text", text: "hello" }],
    } as const;
    const { chunks } = await readAnswer(await ask(() => message));
    expect(chunks).toContainEqual(expect.objectContaining({ delta: "hello" }));
    const stream = createUIMessageStream({
      execute: ({ writer }) => writer.write({ type: "data-note", data: 1 }),
    });
    expect((await readAnswer(await ask(() => stream))).chunks).toEqual([
      { type: "start" },
      { type: "data-note", data: 1 },
      { type: "finish" },
    ]);
  });

  test("may mix text and chunks", async () => {
    const response = await ask(async function* () {
      yield "a";
      yield { type: "data-step", data: new Date(0) };
      yield "b";
    });
    expect((await readAnswer(response)).chunks).toEqual([
      { type: "start" },
      ...text("a"),
      { type: "data-step", data: "1970-01-01T00:00:00.000Z" },
      ...text("b", "text-2"),
      { type: "finish" },
    ]);
  });

  test("may be a model's stream", async () => {
    const response = await ask(({ signal }) =>
      streamText({ model: modelThat(text("hello", "1")), prompt: "?", abortSignal: signal }),
    );
    const { chunks, done } = await readAnswer(response);
    expect(chunks.map(({ type }) => type)).toEqual([
      "start",
      "start-step",
      "text-start",
      "text-delta",
      "text-end",
      "finish-step",
      "finish",
    ]);
    expect(done).toBe(true);
  });

  test("may have work left after its last chunk", async () => {
    const ran: string[] = [];
    await readAnswer(
      await ask(async function* () {
        yield { type: "finish" };
        ran.push("generator");
      }),
    );
    const response = await ask(() =>
      streamText({
        model: modelThat(text("hello", "1")),
        prompt: "?",
        onFinish: () => void ran.push("model"),
      }),
    );
    expect(
      (await readAnswer(response)).chunks.filter(({ type }) => type === "finish"),
    ).toHaveLength(1);
    expect(ran).toEqual(["generator", "model"]);
  });

  test("is made from the request's messages", async () => {
    let given: AnswerContext | undefined;
    const request = requestOf({ headers: { "x-mine": "1" } });
    const handler = handlerOf({
      answer(context) {
        given = context;
        return "";
      },
    });
    await readAnswer(await handler(request));
    const { flotilla, messages } = agentRequest();
    expect(given).toEqual({
      ...flotilla,
      messages,
      trigger: "submit-message",
      webhookId: "s-1:3",
      signal: expect.any(AbortSignal),
      request,
    });
  });

  test("comes as it is made, not once it is whole", async () => {
    let go = () => {};
    const wait = new Promise<void>((resolve) => (go = resolve));
    const response = await ask(async function* () {
      yield "first";
      await wait;
      yield "second";
    });
    const reader = response.body!.getReader();
    let seen = "";
    while (!seen.includes("first")) seen += Buffer.from((await reader.read()).value!).toString();
    expect(seen).not.toContain("second");
    go();
    while (!seen.includes("[DONE]")) seen += Buffer.from((await reader.read()).value!).toString();
    expect(seen).toContain("second");
  });

  test("is made no faster than it is read", async () => {
    let made = 0;
    const response = await ask(async function* () {
      for (; made < 1_000; made++) yield "x";
    });
    await eventLoopTurns(20);
    expect(made).toBeLessThan(5);
    await readAnswer(response);
    expect(made).toBe(1_000);
  });
});

describe("an answer that takes its time", () => {
  test("is kept alive by comments, from before its first chunk", async () => {
    const clock = movableClock();
    let go = () => {};
    const wait = new Promise<void>((resolve) => (go = resolve));
    const handler = handlerOf({
      clock,
      keepAliveMs: 1_000,
      async answer() {
        await wait;
        return "hello";
      },
    });
    const answering = handler(requestOf({ nowMs: clock.now() }));
    await until("the answer is waited for", () => clock.timers > 0);
    await clock.advance(1_000);
    const response = await answering;
    expect(response.status).toBe(200);
    const reader = response.body!.getReader();
    const read = async () => Buffer.from((await reader.read()).value!).toString();
    expect(await read()).toMatch(/^: .*\n\n$/);
    const second = read();
    await until("the answer is waited for", () => clock.timers > 0);
    await clock.advance(1_000);
    expect(await second).toMatch(/^: .*\n\n$/);
    go();
    expect(await read()).toBe('data: {"type":"start"}\n\n');
    await reader.cancel();
    expect(clock.timers).toBe(0);
  });
});

describe("an answer that is no longer wanted", () => {
  test.each(["the stream is cancelled", "the request is"])("is aborted: %s", async (how) => {
    const caller = new AbortController();
    let ended = false;
    let given: AbortSignal | undefined;
    const handler = handlerOf({
      async *answer({ signal }) {
        given = signal;
        try {
          yield "first";
          await new Promise((_, reject) => {
            signal.addEventListener("abort", () => reject(signal.reason as Error));
          });
        } finally {
          ended = true;
        }
      },
    });
    const response = await handler(requestOf({ signal: caller.signal }));
    const reader = response.body!.getReader();
    await reader.read();
    expect(given!.aborted).toBe(false);
    if (how === "the request is") caller.abort();
    else await reader.cancel();
    await until("it has ended", () => ended);
    expect(given!.aborted).toBe(true);
    // A client that leaves causes no error.
    expect(errors).not.toHaveBeenCalled();
  });
});

describe("an answer that fails", () => {
  const secretly = () => {
    throw new Error("password is hunter2");
  };

  test("before its first chunk is a status, so that the request is retried", async () => {
    for (const answer of [
      secretly,
      async () => secretly(),
      async function* () {
        yield { type: "start" };
        secretly();
      },
      () => streamText({ model: brokenModel(), prompt: "?", maxRetries: 0, onError() {} }),
    ]) {
      errors.mockClear();
      const response = await ask(answer as Given["answer"]);
      expect(response.status).toBe(500);
      const body = await response.text();
      expect(JSON.parse(body)).toMatchObject({ error: { code: "handler_failed" } });
      expect(body).not.toMatch(/hunter2|\.ts/);
      expect(errors).toHaveBeenCalledTimes(1);
      expect(String(errors.mock.calls[0]![1])).toContain("hunter2");
    }
  });

  test("half-way reports that it did, and not why", async () => {
    const response = await ask(async function* () {
      yield "first";
      secretly();
    });
    expect(response.status).toBe(200);
    const { chunks, done } = await readAnswer(response);
    expect(chunks.at(-1)).toEqual({ type: "error", errorText: "An error occurred." });
    expect(done).toBe(true);
    expect(JSON.stringify(chunks)).not.toMatch(/hunter2|\.ts/);
    expect(errors).toHaveBeenCalledTimes(1);
  });

  test.each([true, false])(
    "reports what `onError` returns (after a first chunk: %s)",
    async (some) => {
      const seen: unknown[] = [];
      const response = await ask(
        async function* () {
          if (some) yield "first";
          secretly();
        },
        {
          onError(error, { sessionId }) {
            seen.push(error, sessionId);
            return "Come back later.";
          },
        },
      );
      expect(response.status).toBe(200);
      const { chunks, done } = await readAnswer(response);
      expect(chunks[0]).toEqual({ type: "start" });
      expect(chunks.at(-1)).toEqual({ type: "error", errorText: "Come back later." });
      expect(done).toBe(true);
      expect(seen).toEqual([expect.objectContaining({ message: "password is hunter2" }), "s-1"]);
      expect(errors).not.toHaveBeenCalled();
    },
  );

  test("by `abort` reports the reason", async () => {
    const response = await ask(() => {
      throw abort("You have no credits left.");
    });
    expect((await readAnswer(response)).chunks).toEqual([
      { type: "start" },
      { type: "error", errorText: "You have no credits left." },
    ]);
  });

  test("is masked where `onError` throws as well, or returns nothing", async () => {
    const rejecting = { onError: () => Promise.reject(new Error("no log today")) };
    for (const rest of [rejecting, { onError: () => {} }, { onError: () => "" }]) {
      expect((await ask(secretly, rest)).status).toBe(500);
    }
  });

  test("by a model's error half-way is reported like any other", async () => {
    const broken = [...text("first", "1"), { type: "error", error: new Error("hunter2") }];
    const response = await ask(() =>
      streamText({ model: modelThat(broken), prompt: "?", maxRetries: 0, onError() {} }),
    );
    const { chunks } = await readAnswer(response);
    expect(chunks.at(-1)).toEqual({ type: "error", errorText: "An error occurred." });
    expect(String(errors.mock.calls[0]![1])).toContain("hunter2");
  });

  test("by an error chunk of its own keeps its text", async () => {
    const response = await ask(() => [{ type: "error", errorText: "I can't." }]);
    expect((await readAnswer(response)).chunks.at(-1)).toEqual({
      type: "error",
      errorText: "I can't.",
    });
  });

  test.each<[string, unknown, RegExp]>([
    ["nothing", undefined, /an agent must return text/],
    ["a number", 7, /an agent must return text/],
    ["a chunk without its fields", [{ type: "text-delta", id: "1" }], /delta must be text/],
    ["bytes", [new Uint8Array(1)], /contains bytes/],
    [
      "a page",
      new Response("<html>", { headers: { "content-type": "text/html" } }),
      /event-stream/,
    ],
    ["a stream that stops", new Response('data: {"type":"start"}\n\n', sse()), /ended before/],
    ["a stream that isn't JSON", new Response("data: {\n\n", sse()), /isn't JSON/],
  ])("because it is %s, is explained to its developer", async (_, given, message) => {
    const response = await ask(() => given as string);
    expect(response.status).toBe(500);
    expect(String(errors.mock.calls[0]![1])).toMatch(message);
  });

  test("by a Response with an error status, is that Response", async () => {
    const busy = () => new Response("busy", { status: 429, headers: { "retry-after": "7" } });
    const response = await ask(busy);
    expect([response.status, response.headers.get("retry-after")]).toEqual([429, "7"]);
    expect(errors).not.toHaveBeenCalled();
  });
});

describe("a request", () => {
  const never = handlerOf({ answer: () => expect.unreachable() });

  test("that isn't signed gets a status and gives the reason as JSON", async () => {
    const response = await never(requestOf({ secrets: [] }));
    expect(response.status).toBe(401);
    expect(await errorIn(response)).toMatchObject({ code: "unauthorized" });
  });

  test.each(["{", "null", "[]", "{}", JSON.stringify({ ...agentRequest(), flotilla: undefined })])(
    "that is signed and has no messages is refused: %s",
    async (body) => {
      const response = await never(requestOf({ body }));
      expect(response.status).toBe(400);
      expect(await errorIn(response)).toMatchObject({ code: "invalid_input" });
    },
  );

  test("by another method is answered with the allowed one", async () => {
    const response = await never(new Request("http://agents.example/"));
    expect([response.status, response.headers.get("allow")]).toEqual([405, "POST"]);
  });

  test("whose body was read before is answered with what to do about it", async () => {
    const request = requestOf();
    await request.json();
    const response = await never(request);
    expect(response.status).toBe(500);
    expect((await errorIn(response)).message).toContain("before express.json()");
  });
});

test("options that don't exist are refused, with the one that was meant", () => {
  const options = { secret, answer: () => "", keepaliveMs: 1 };
  expect(() => createAgentHandler(options as never)).toThrow(/did you mean `keepAliveMs`/);
  expect(() => createAgentHandler({ secret } as never)).toThrow(/answer must be a function/);
  expect(() => handlerOf({ answer: () => "", keepAliveMs: 0 })).toThrow(/keepAliveMs/);
  expect(() => handlerOf({ answer: () => "", secret: "" })).toThrow(/secret/);
});

function sse() {
  return { headers: { "content-type": "text/event-stream" } };
}

function modelThat(parts: object[]): MockLanguageModelV4 {
  const usage = {
    inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
    outputTokens: { total: 1, text: 1, reasoning: 0 },
  };
  const finish = { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage };
  const all = [{ type: "stream-start", warnings: [] }, ...parts, finish];
  return new MockLanguageModelV4({
    doStream: async () => ({ stream: convertArrayToReadableStream(all) as never }),
  });
}

function brokenModel(): MockLanguageModelV4 {
  return new MockLanguageModelV4({ doStream: () => Promise.reject(new Error("hunter2")) });
}
