import { createUIMessageStream, createUIMessageStreamResponse } from "ai";
import { describe, expect, test } from "vitest";
import { abort, retryAfter } from "../../base/errors.ts";
import { until } from "../../base/contract/movable-clock.ts";
import { agent } from "../agents/agent.ts";
import type { AgentAnswer } from "../../protocol/agent-http.ts";
import { events, createRunnerHarness, saying, sse, replyText } from "../contract/turns-harness.ts";
import type { AgentContext } from "../agents/spec.ts";

const quick = { backoff: { baseMs: 1, jitter: 0 } };

function sceneWith(run: (context: AgentContext) => unknown) {
  return createRunnerHarness(agent("helper", quick, (context) => run(context) as AgentAnswer));
}

describe("an agent's function", () => {
  const message = { id: "x", role: "assistant", parts: [{ type: "text", text: "hello" }] };
  const chunks = [{ type: "start" }, ...saying("hello"), { type: "finish" }];

  test.each<[string, () => unknown]>([
    ["text", () => "hello"],
    ["a promise of text", async () => "hello"],
    ["a list of chunks", () => chunks],
    ["chunks without an end", () => saying("hello")],
    [
      "a generator of text",
      function* () {
        yield "hel";
        yield "lo";
      },
    ],
    [
      "an asynchronous generator of text",
      async function* () {
        yield "hel";
        yield "lo";
      },
    ],
    ["a stream of text", () => ReadableStream.from(["hel", "lo"])],
    ["a stream of chunks", () => ReadableStream.from(chunks)],
    ["a message", () => message],
    ["a promise of a message", async () => message],
    ["a response", () => new Response(events(...chunks), { headers: sse })],
    [
      "the AI SDK's stream",
      () =>
        createUIMessageStream({
          execute: ({ writer }) => {
            for (const chunk of saying("hello")) writer.write(chunk as never);
          },
        }),
    ],
    [
      "the AI SDK's response",
      () => createUIMessageStreamResponse({ stream: ReadableStream.from(chunks as never[]) }),
    ],
  ])("may give %s", async (_, run) => {
    const { answer } = sceneWith(run);
    const reply = await answer();
    expect(reply.outcome).toBe("completed");
    expect(reply.parts.filter(({ type }) => type !== "step-start")).toMatchObject([
      { type: "text", text: "hello", state: "done" },
    ]);
  });

  test("may mix text with chunks", async () => {
    const { answer } = sceneWith(async function* () {
      yield "one";
      yield { type: "data-note", data: { at: new Date(0), none: undefined } };
      yield "two";
    });
    expect((await answer()).parts).toEqual([
      { type: "text", text: "one", state: "done" },
      { type: "data-note", data: { at: "1970-01-01T00:00:00.000Z" } },
      { type: "text", text: "two", state: "done" },
    ]);
  });

  test.each<[string, () => unknown]>([
    ["nothing", () => undefined],
    ["a number", () => 7],
    ["an object", () => ({})],
    ["bytes", () => ReadableStream.from([new Uint8Array([1])])],
    ["what isn't JSON", () => [{ type: "data-x", data: 1n }]],
    [
      "a response that is none",
      () => new Response("<html>", { headers: { "content-type": "text/html" } }),
    ],
  ])("that gives %s has failed", async (_, run) => {
    const { answer } = sceneWith(run);
    expect(await answer()).toMatchObject({
      outcome: "failed",
      error: { code: "agent_invalid" },
    });
  });

  test("that throws is called again, and no user learns what it threw", async () => {
    let calls = 0;
    const { answer, logged } = sceneWith(() => {
      calls++;
      throw new Error("password is hunter2");
    });
    const reply = await answer();
    expect(reply).toMatchObject({
      outcome: "failed",
      error: { code: "agent_failed", message: "the agent failed" },
    });
    expect(calls).toBe(3);
    expect(JSON.stringify(logged)).toContain("hunter2");
  });

  test("that throws before its first chunk may still answer", async () => {
    let calls = 0;
    const { answer, live } = sceneWith(async function* () {
      yield { type: "start-step" };
      if (++calls < 3) throw retryAfter(1, "not yet");
      yield* saying("third time");
    });
    expect(replyText(await answer())).toBe("third time");
    const types = live.flatMap(({ chunks: sent }) => sent).map(({ type }) => type);
    expect(types).toEqual([
      "start",
      "start-step",
      "text-start",
      "text-delta",
      "text-end",
      "finish",
    ]);
  });

  test("that throws in the middle has its answer cut, and isn't called again", async () => {
    let calls = 0;
    const { answer } = sceneWith(async function* () {
      calls++;
      yield "half of ";
      throw new Error("gone");
    });
    expect(await answer()).toMatchObject({
      outcome: "cut",
      parts: [{ text: "half of ", state: "done" }],
      error: { code: "agent_failed" },
    });
    expect(calls).toBe(1);
  });

  test("that aborts isn't called again, and the reason is kept", async () => {
    let calls = 0;
    const { answer } = sceneWith(() => {
      calls++;
      throw abort("this account is closed");
    });
    expect((await answer()).error).toEqual({
      code: "agent_failed",
      message: "this account is closed",
    });
    expect(calls).toBe(1);
  });

  test("that never stops yielding nothing can't keep other turns from running", async () => {
    const { begin, runner, reply, live } = sceneWith(async function* () {
      yield "x";
      for (;;) yield "";
    });
    const { epoch } = await begin();
    await until("somebody else's turn", () => live.length > 1);
    runner.abort({ ...runner.running()[0]!, epoch }, { keep: true });
    expect(await reply()).toMatchObject({ outcome: "stopped", parts: [{ text: "x" }] });
  });

  test("is called with the request", async () => {
    let told: AgentContext | undefined;
    const { answer, sessionId } = sceneWith((context) => {
      told = context;
      return "hello";
    });
    await answer({ attempt: 2 });
    expect(told).toMatchObject({
      sessionId,
      tenant: "default",
      user: "ada",
      epoch: 1,
      attempt: 2,
      trigger: "submit-message",
      messageId: "answer",
      messages: [{ role: "user", parts: [{ type: "text", text: "said 1" }] }],
    });
  });

  test("enqueues and starts things once, however often its turn is started over", async () => {
    const keys: string[] = [];
    const make = async (_what: unknown, _input: unknown, { key }: { key: string }) => {
      keys.push(key);
      return { taskId: key, runId: key };
    };
    const spec = agent("helper", {}, async ({ enqueue, start }) => {
      await enqueue("mail", { to: "ada", about: 1 });
      await enqueue({ name: "mail" }, { about: 1, to: "ada" });
      await enqueue("mail", { to: "bob", about: 1 });
      await enqueue("mail", { to: "bob" }, { toolCallId: "call-1" });
      await start("mail-flow", { to: "ada", about: 1 });
      return "sent";
    });
    const { answer, told } = createRunnerHarness(spec, { enqueue: make, start: make });
    await answer({ epoch: 1, attempt: 1 });
    const first = keys.splice(0);
    expect(new Set(first).size).toBe(4);
    expect(first[0]).toBe(first[1]);
    told.length = 0;
    await answer({ epoch: 1, attempt: 2 });
    expect(keys).toEqual(first);
    await answer({ epoch: 2 });
    expect(keys.slice(5).some((key) => first.includes(key))).toBe(false);
  });
});
