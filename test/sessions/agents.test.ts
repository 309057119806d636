import {
  convertToModelMessages,
  stepCountIs,
  streamText,
  tool,
  type ToolSet,
  type UIMessage as SdkMessage,
} from "ai";
import { convertArrayToReadableStream, MockLanguageModelV4 } from "ai/test";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { z } from "zod";
import type { UIMessage } from "../../src/protocol/message.ts";
import { agent } from "../../src/sessions/agents/agent.ts";
import { entriesOnce, type SessionFleet, startFleet, stores, textOf } from "./fleet.ts";
import type { AgentContext } from "../../src/sessions/agents/spec.ts";

const usage = {
  inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
  outputTokens: { total: 1, text: 1, reasoning: 0 },
};
const ending = (unified: string) => ({
  type: "finish",
  finishReason: { unified, raw: unified },
  usage,
});
const begin = { type: "stream-start", warnings: [] };
const says = (text: string) => [
  begin,
  { type: "text-start", id: "1" },
  { type: "text-delta", id: "1", delta: text },
  { type: "text-end", id: "1" },
  ending("stop"),
];
const calls = (toolName: string) => [
  begin,
  { type: "tool-call", toolCallId: `call-${toolName}`, toolName, input: '{"at":"sea"}' },
  ending("tool-calls"),
];

/** Decides by what it is shown: calls the tool that the user names, then says what came of it. */
function model(): MockLanguageModelV4 {
  return new MockLanguageModelV4({
    doStream: async ({ prompt }) => {
      const last = prompt.at(-1)!;
      const wanted = prompt.findLast(({ role }) => role === "user")!;
      const asked = JSON.stringify(wanted.content);
      const name = ["weather", "erase", "locate"].find((each) => asked.includes(each));
      const chunks =
        last.role === "tool" || name === undefined
          ? says(`seen ${JSON.stringify(last.content).length > 0 ? last.role : ""}`)
          : calls(name);
      return { stream: convertArrayToReadableStream(chunks as never[]) };
    },
  });
}

const erased: string[] = [];
const input = z.object({ at: z.string() });
const tools = {
  weather: tool({ inputSchema: input, execute: async ({ at }) => `rain at ${at}` }),
  erase: tool({
    inputSchema: input,
    needsApproval: true,
    execute: async ({ at }) => {
      erased.push(at);
      return `erased ${at}`;
    },
  }),
  // Without `execute` it is for the client to run.
  locate: tool({ inputSchema: input }),
};
const helper = agent("helper", async ({ messages, signal }: AgentContext) =>
  streamText({
    model: model(),
    tools: tools as unknown as ToolSet,
    abortSignal: signal,
    stopWhen: stepCountIs(3),
    messages: await convertToModelMessages([...messages] as unknown as SdkMessage[]),
  }),
);

const told: (readonly UIMessage[])[] = [];
let compactions = 0;
let compactorFails = false;
const longWinded = agent(
  "long-winded",
  {
    history: "entire",
    compaction: {
      tokenBudget: 100,
      triggerRatio: 0.5,
      fn: ({ messages, summary }) => {
        compactions++;
        if (compactorFails) throw new Error("no summary today");
        return `${summary ?? "summary"} of ${messages.length}`;
      },
    },
  },
  async function* ({ messages }) {
    told.push(messages);
    yield `answer ${messages.length}`;
  },
);

describe.each(stores)("agents in sessions on $name", (store) => {
  let fleet: SessionFleet;
  beforeAll(async () => {
    fleet = await startFleet(store, [helper, longWinded]);
  });
  afterAll(() => fleet[Symbol.asyncDispose]());

  test("a model's tool runs within its answer", async () => {
    const chat = await fleet.web.sessions.create("helper", { user: "ada" });
    const answer = await chat.ask("how is the weather?");
    expect(answer.parts.map(({ type }) => type)).toEqual([
      "step-start",
      "tool-weather",
      "step-start",
      "text",
    ]);
    expect(answer.parts[1]).toMatchObject({ state: "output-available", output: "rain at sea" });
  });

  test.each([true, false])(
    "a call that has to be allowed waits for that, and goes on in the same message (%s)",
    async (approved) => {
      const chat = await fleet.other.sessions.create("helper", { user: "ada" });
      const before = erased.length;
      const asks = await chat.ask("erase it");
      expect(asks.parts.at(-1)).toMatchObject({ state: "approval-requested" });
      expect((await chat.view()).state).toEqual({ state: "idle" });
      await chat.toolResult(asks.messageId, [{ toolCallId: "call-erase", approved }]);
      const entries = await entriesOnce(chat, (all) => all.length === 4);
      expect(entries[3]).toMatchObject({
        messageId: asks.messageId,
        replaces: asks.seq,
        outcome: "completed",
      });
      expect(textOf(entries[3]!)).toBe("seen tool");
      expect(erased.length - before).toBe(approved ? 1 : 0);
      // What was stored first is still as it was, and shown is one message of the agent.
      expect(entries[1]).toEqual(asks);
      expect((await chat.messages()).map(({ role }) => role)).toEqual(["user", "assistant"]);
    },
  );

  test("a result of a call that there wasn't is refused, and calls no agent", async () => {
    const chat = await fleet.able.sessions.create("helper", { user: "ada" });
    const answer = await chat.ask("how is the weather?");
    const stray = chat.toolResult(answer.messageId, [{ toolCallId: "call-none", output: 1 }]);
    await expect(stray).rejects.toMatchObject({ code: "invalid_input" });
    expect(await chat.view()).toMatchObject({ lastSeq: 2, state: { state: "idle" } });
  });

  test("a call that the client runs goes on with what it found", async () => {
    const chat = await fleet.able.sessions.create("helper", { user: "ada" });
    const asks = await chat.ask("locate me");
    expect(asks.parts.at(-1)).toMatchObject({ type: "tool-locate", state: "input-available" });
    const id = "result-1";
    const results = [{ toolCallId: "call-locate", output: { lat: 1 } }];
    const sent = await chat.toolResult(asks.messageId, results, { id });
    expect(await chat.toolResult(asks.messageId, results, { id })).toEqual({
      ...sent,
      duplicate: true,
    });
    const entries = await entriesOnce(chat, (all) => all.length === 4);
    expect(entries[3]!.parts).toMatchObject([
      {},
      { type: "tool-locate", state: "output-available", output: { lat: 1 } },
      {},
      { type: "text" },
    ]);
  });

  test("compaction: sums up, then answers what came; the next turn gets the summary", async () => {
    told.length = 0;
    compactions = 0;
    const chat = await fleet.web.sessions.create("long-winded", { user: "ada" });
    await chat.ask("short");
    expect(compactions).toBe(0);
    const answer = await chat.ask(`a ${"very ".repeat(40)}long message`);
    const { entries } = await chat.entries();
    // The message that was to be answered isn't summed up: its agent sees it in full. With its answer it
    // is more than the budget, and may have been summed up by now.
    expect(
      entries.slice(0, 5).map(({ kind, role, throughSeq }) => throughSeq ?? `${kind} of ${role}`),
    ).toEqual([
      "message of user",
      "message of assistant",
      "message of user",
      2,
      "message of assistant",
    ]);
    expect(told.at(-1)!.map(({ role }) => role)).toEqual(["system", "user"]);
    expect(textOf(told.at(-1)![0]!)).toBe("summary of 2");
    expect(textOf(answer)).toBe("answer 2");
  });

  test("compaction: a broken compactor blocks no turn", async () => {
    compactorFails = true;
    compactions = 0;
    try {
      const chat = await fleet.web.sessions.create("long-winded", { user: "ada" });
      await chat.ask(`a ${"very ".repeat(40)}long message`);
      await expect.poll(() => compactions).toBeGreaterThan(0);
      expect(textOf(await chat.ask("still there?"))).toBe("answer 3");
      expect(textOf(await chat.ask("and now?"))).toBe("answer 5");
      expect((await chat.entries()).entries.some(({ kind }) => kind === "summary")).toBe(false);
    } finally {
      compactorFails = false;
    }
  });
});
