import { streamText, wrapLanguageModel } from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { describe, expect, test } from "vitest";
import { agent } from "../sessions/agents/agent.ts";
import { task } from "../tasks/task.ts";
import { throttle } from "../throttles/throttle.ts";
import { scriptedAgent } from "./scripted-agent.ts";
import { testFlotilla } from "./test-flotilla.ts";

const prices = { small: { input: 2, output: 10, cached: 0.5 } };

/** A model that says hello, and reports its tokens. */
function modelNamed(modelId: string): MockLanguageModelV4 {
  const usage = {
    inputTokens: { total: 100, noCache: 60, cacheRead: 40, cacheWrite: 0 },
    outputTokens: { total: 7, text: 7, reasoning: 0 },
  };
  return new MockLanguageModelV4({
    modelId,
    doStream: async () => ({
      stream: convertArrayToReadableStream([
        { type: "text-start", id: "t" },
        { type: "text-delta", id: "t", delta: "Hello" },
        { type: "text-end", id: "t" },
        { type: "finish", finishReason: { unified: "stop", raw: "stop" }, usage },
      ]),
    }),
  });
}

describe("turns", () => {
  test("tell their times, pod and outcome, and the tokens and cost that an agent reports", async () => {
    const helper = agent("helper", async function* ({ usage }) {
      usage({ model: "small", input: 1_000, output: 50, cached: 200 });
      yield "hello";
      usage({ model: "small", input: 500, output: 10 });
    });
    await using t = await testFlotilla({ use: [helper], prices });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("hi");
    const used = { input: 1_500, output: 60, cached: 200, model: "small", cost: 0.0033 };
    expect(answer.metadata).toEqual({ usage: used });
    const { turns, next } = await chat.turns();
    expect(next).toBeNull();
    expect(turns).toEqual([
      {
        epoch: 1,
        attempt: 1,
        agent: "helper",
        podId: expect.any(String),
        beganAtMs: expect.any(Number),
        firstChunkAtMs: expect.any(Number),
        endedAtMs: expect.any(Number),
        outcome: "completed",
        usage: used,
      },
    ]);
    const [turn] = turns;
    expect(turn!.firstChunkAtMs!).toBeGreaterThanOrEqual(turn!.beganAtMs);
    expect(turn!.endedAtMs!).toBeGreaterThanOrEqual(turn!.firstChunkAtMs!);
  });

  test("have no usage where nothing reports any, and no cost where a price isn't known", async () => {
    const helper = scriptedAgent("helper", [
      "nothing",
      ({ usage }) => {
        usage({ model: "large", input: 1, output: 1 });
        return "something";
      },
    ]);
    await using t = await testFlotilla({ use: [helper], prices });
    const chat = await t.sessions.create(helper, { user: "ada" });
    expect((await chat.ask("one")).metadata).toBeUndefined();
    const usage = { input: 1, output: 1, cached: 0, model: "large", cost: null };
    expect((await chat.ask("two")).metadata).toEqual({ usage });
    const { turns } = await chat.turns();
    expect(turns.map((each) => each.usage)).toEqual([usage, null]);
  });

  test("count a model's call once, though two throttles wrap it and the agent reports it too", async () => {
    const [requests, tokens] = [throttle("requests"), throttle("tokens")];
    const model = wrapLanguageModel({
      model: modelNamed("small"),
      middleware: [requests.middleware(), tokens.middleware()],
    });
    const helper = agent("helper", ({ signal, usage }) =>
      streamText({
        model,
        prompt: "hi",
        abortSignal: signal,
        onFinish: () => usage({ model: "small", input: 100, output: 7 }),
      }),
    );
    await using t = await testFlotilla({ use: [helper], prices });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("hi");
    expect(answer.metadata).toEqual({
      usage: { input: 100, output: 7, cached: 40, model: "small", cost: 0.00021 },
    });
  });

  test("leave an agent's own usage in the metadata alone", async () => {
    const helper = scriptedAgent("helper", [
      async function* ({ usage }) {
        usage({ model: "small", input: 1, output: 1 });
        yield "hello";
        yield { type: "message-metadata", messageMetadata: { usage: { totalTokens: 2 } } };
      },
    ]);
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    expect((await chat.ask("hi")).metadata).toEqual({ usage: { totalTokens: 2 } });
    expect((await chat.turns()).turns[0]?.usage).toMatchObject({ input: 1, output: 1 });
  });

  test("add up in the metadata of an answer that continues with a tool's result", async () => {
    const helper = scriptedAgent("helper", [
      async function* ({ usage }) {
        usage({ model: "small", input: 10, output: 1 });
        yield { type: "tool-input-available", toolCallId: "c", toolName: "where", input: {} };
      },
      ({ usage }) => {
        usage({ model: "large", input: 20, output: 2 });
        return "at sea";
      },
    ]);
    await using t = await testFlotilla({ use: [helper], prices });
    const chat = await t.sessions.create(helper, { user: "ada" });
    const asked = await chat.ask("where?");
    expect(asked.metadata).toMatchObject({ usage: { input: 10, cost: 0.00003 } });
    await chat.toolResult(asked.messageId, [{ toolCallId: "c", output: "sea" }]);
    for await (const event of chat.events({ after: asked.seq })) {
      if (event.type !== "entry" || event.entry.role !== "assistant") continue;
      expect(event.entry.metadata).toEqual({
        usage: { input: 30, output: 3, cached: 0, model: "small,large", cost: null },
      });
      break;
    }
  });

  test("list the attempt that was lost with its pod, and the one that answered", async () => {
    const helper = scriptedAgent("helper", [["one ", "two ", "three"]]);
    await using t = await testFlotilla({ use: [helper], pods: 2 });
    const crash = t.crashAfter("chunk", { times: 2 });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("hi");
    const { turns } = await chat.turns();
    expect(turns).toMatchObject([
      { epoch: 1, attempt: 2, outcome: "completed" },
      { epoch: 1, attempt: 1, outcome: "lost", podId: crash.pod!.podId, usage: null },
    ]);
  });

  test("show the one under way, and page from the newest on", async () => {
    const gate = Promise.withResolvers<void>();
    const helper = scriptedAgent("helper", ["one", "two", ["three", gate.promise]]);
    await using t = await testFlotilla({ use: [helper] });
    const chat = await t.sessions.create(helper, { user: "ada" });
    await chat.ask("1");
    await chat.ask("2");
    await chat.send("3");
    for await (const event of chat.events()) if (event.type === "chunk") break;
    const first = await chat.turns({ limit: 1 });
    expect(first).toMatchObject({
      turns: [
        { epoch: 3, outcome: null, endedAtMs: null },
        { epoch: 2, outcome: "completed" },
      ],
      next: "2.1",
    });
    const rest = await chat.turns({ limit: 1, cursor: first.next! });
    expect(rest).toMatchObject({ turns: [{ epoch: 1 }], next: null });
    await expect(chat.turns({ cursor: "x" })).rejects.toMatchObject({ code: "invalid_input" });
    gate.resolve();
  });

  test("are linked to the tasks that they start, once, though the turn starts over", async () => {
    const mail = task<string>("mail", {}, () => {});
    const helper = scriptedAgent("helper", [
      async function* ({ enqueue }) {
        const { taskId } = await enqueue(mail, "ada");
        yield taskId;
        yield "";
      },
    ]);
    await using t = await testFlotilla({ use: [helper, mail], pods: 2 });
    const crash = t.crashAfter("chunk");
    const chat = await t.sessions.create(helper, { user: "ada" });
    const answer = await chat.ask("mail ada");
    expect(crash.pod?.alive).toBe(false);
    const taskId = answer.parts[0]!["text"];
    expect(await chat.started()).toMatchObject({
      started: [{ taskId, what: "session", name: "mail" }],
      hasMore: false,
    });
    await chat.remove();
    await expect(chat.started()).rejects.toMatchObject({ code: "not_found" });
  });
});
