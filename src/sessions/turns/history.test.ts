import { describe, expect, test } from "vitest";
import type { Part, UIMessage } from "../../protocol/message.ts";
import { agent } from "../agents/agent.ts";
import type { AgentOptions } from "../agents/options.ts";
import type { DecidedEntry } from "../conversation/command.ts";
import { createRunnerHarness } from "../contract/turns-harness.ts";

/** What an agent with these options is told. */
function sceneWith(options: AgentOptions = {}) {
  const told: { messages: readonly UIMessage[]; summary?: string | undefined; user?: string }[] =
    [];
  const spec = agent("helper", options, ({ messages, summary, user }) => {
    told.push({ messages, summary, ...(user !== undefined && { user }) });
    return "fine";
  });
  return { ...createRunnerHarness(spec), told };
}

const text = (said: string) => [{ type: "text", text: said }];
const said = (count: number, from = 1): Partial<DecidedEntry>[] =>
  Array.from({ length: count }, (_, index) =>
    index % 2 === 0
      ? { messageId: `m${from + index}`, parts: text(`question ${from + index}`) }
      : {
          messageId: `m${from + index}`,
          role: "assistant" as const,
          author: "helper",
          outcome: "completed" as const,
          parts: text(`answer ${from + index}`),
        },
  );
const ids = (messages: readonly UIMessage[]) => messages.map(({ id }) => id);

describe("the history for an agent", () => {
  test.each<[string, AgentOptions, number, string]>([
    ["the newest 50 by default", {}, 50, "m352"],
    ["the newest so many", { history: { tail: 7 } }, 7, "m395"],
    ["only the last", { history: "last" }, 1, "m401"],
    ["the last so many", { history: { last: 130 } }, 130, "m272"],
    ["everything", { history: "entire" }, 401, "m1"],
    ["the newest of everything", { history: "entire", context: { lastN: 3 } }, 3, "m399"],
  ])("of hundreds of messages is %s", async (_, options, count, first) => {
    const { store, answer, told } = sceneWith(options);
    await store(said(401));
    await answer();
    expect(told[0]!.messages).toHaveLength(count);
    expect(told[0]!.messages[0]!.id).toBe(first);
    expect(told[0]!.messages.at(-1)!.id).toBe("m401");
  });

  test("doesn't have what came after the message that it answers", async () => {
    const { store, answer, told } = sceneWith({ history: { tail: 3 } });
    await store(said(300));
    await answer({ upToSeq: 201 });
    expect(ids(told[0]!.messages)).toEqual(["m199", "m200", "m201"]);
  });

  test.each<[AgentOptions, string[]]>([
    [{ history: "entire" }, ["one", "to one", "two", "three"]],
    [{ history: { tail: 2 } }, ["two", "three"]],
    [{ history: "last" }, ["three"]],
  ])("ends with what waited while it answered: %j", async (options, expected) => {
    const { store, answer, told } = sceneWith(options);
    const own = { role: "assistant", author: "helper", outcome: "completed" } as const;
    await store([
      { messageId: "one", parts: text("one") },
      { messageId: "two", parts: text("two") },
      { messageId: "three", parts: text("three") },
      { ...own, messageId: "to one", upToSeq: 1, parts: text("answer") },
    ]);
    await answer();
    expect(ids(told[0]!.messages)).toEqual(expected);
  });

  test("of a regeneration is what was before the first time", async () => {
    const { store, answer, told } = sceneWith();
    const own = { role: "assistant", author: "helper", outcome: "completed" } as const;
    await store([
      { messageId: "one", parts: text("one") },
      { messageId: "two", parts: text("two") },
      { ...own, messageId: "to one", upToSeq: 1, parts: text("answer") },
      { ...own, messageId: "to two", upToSeq: 3, parts: text("answer") },
    ]);
    await answer({ trigger: "regenerate", messageId: "to two", replaces: 4 });
    await answer({ trigger: "regenerate", messageId: "to one", replaces: 3 });
    expect(told.map(({ messages }) => ids(messages))).toEqual([["one", "to one", "two"], ["one"]]);
  });

  test("begins with the summary of what was before, and has nothing of that", async () => {
    const { store, answer, told } = sceneWith({ history: { tail: 4 } });
    await store(said(120));
    const summary = { kind: "summary", role: "system", messageId: "s", throughSeq: 120 } as const;
    const header = { summarySeq: 121, compactedSeq: 120 };
    await store([{ ...summary, parts: text("they talked") }, ...said(2, 121)], header);
    await answer();
    expect(told[0]).toMatchObject({ summary: "they talked", user: "ada" });
    expect(told[0]!.messages).toMatchObject([
      { id: "s", role: "system", parts: text("they talked") },
      { id: "m121" },
      { id: "m122" },
    ]);
  });

  test("has no summary where only the last messages are wanted", async () => {
    const { store, answer, told } = sceneWith({ history: { last: 2 } });
    await store(said(4));
    await store([{ kind: "summary", role: "system", parts: text("short") }, ...said(1, 5)], {
      summarySeq: 5,
      compactedSeq: 4,
    });
    await answer();
    expect(ids(told[0]!.messages)).toEqual(["m5"]);
  });

  test("leaves out answers that failed or are empty, and what is before them makes up for that", async () => {
    const { store, answer, told } = sceneWith({ history: { tail: 60 } });
    await store(said(80));
    const failed = { role: "assistant", author: "helper", outcome: "failed", parts: [] } as const;
    for (let count = 0; count < 40; count++) {
      await store([{ messageId: `q${count}` }, { ...failed, messageId: `f${count}` }]);
    }
    await store([
      { ...failed, messageId: "e", outcome: "completed", parts: [{ type: "step-start" }] },
      { messageId: "last" },
    ]);
    await answer();
    const found = ids(told[0]!.messages);
    expect(found).toHaveLength(60);
    expect(found.filter((id) => /^[fe]/.test(id))).toEqual([]);
    expect(found[0]).toBe("m62");
  });

  describe("with a message that was heard during an answer", () => {
    const heard = { type: "steering-message", id: "heard", parts: text("by train") };
    const answerOf = (parts: readonly Part[]) => ({
      messageId: "answer",
      role: "assistant" as const,
      author: "helper",
      outcome: "completed" as const,
      parts,
    });
    const whole = [...text("one"), heard, { type: "step-start" }, ...text("two")];

    test("has it behind what the agent had said, and before the rest", async () => {
      const { store, answer, told } = sceneWith();
      await store([
        { messageId: "asked" },
        { messageId: "elsewhere" },
        { messageId: "heard", author: "bob", parts: text("by train") },
        { ...answerOf(whole), beganSeq: 1, upToSeq: 3 },
      ]);
      await answer();
      const { messages } = told[0]!;
      expect(ids(messages)).toEqual(["asked", "answer/1", "heard", "answer", "elsewhere"]);
      expect(messages[2]).toMatchObject({
        role: "user",
        metadata: { flotilla: { author: "bob" } },
      });
      expect(messages.map(({ parts }) => parts.at(-1)?.["text"])).toEqual([
        "said 1",
        "one",
        "by train",
        "two",
        "said 2",
      ]);
    });

    test("has it before an answer that is made anew, and of one that was made anew", async () => {
      const { store, answer, told } = sceneWith();
      await store([
        { messageId: "asked" },
        { messageId: "heard", parts: text("by train") },
        { ...answerOf(whole), beganSeq: 1, upToSeq: 2 },
      ]);
      await answer({ trigger: "regenerate", messageId: "answer", replaces: 3 });
      expect(ids(told[0]!.messages)).toEqual(["asked", "heard"]);
      await store([{ ...answerOf(text("three")), replaces: 3 }, { messageId: "next" }]);
      await answer();
      expect(ids(told[1]!.messages)).toEqual(["asked", "heard", "answer", "next"]);
    });

    test("has it from the answer where it isn't among the last messages itself", async () => {
      const { store, answer, told } = sceneWith({ history: { last: 2 } });
      await store([
        { messageId: "asked" },
        { messageId: "heard" },
        { ...answerOf([heard, ...text("two")]), beganSeq: 1, upToSeq: 2 },
        { messageId: "next" },
      ]);
      await answer();
      expect(told[0]!.messages).toMatchObject([
        { id: "heard", role: "user", parts: text("by train") },
        { id: "answer", parts: text("two") },
        { id: "next" },
      ]);
    });
  });

  test("keeps what was streamed before an answer was cut, without calls that never ended", async () => {
    const { store, answer, told } = sceneWith();
    const call = (toolCallId: string, state: string) => ({ type: "tool-look", toolCallId, state });
    await store([
      {},
      {
        messageId: "cut",
        role: "assistant",
        outcome: "cut",
        parts: [...text("half"), call("a", "input-streaming"), call("b", "input-available")],
      },
      {
        messageId: "asks",
        role: "assistant",
        outcome: "completed",
        parts: [call("c", "input-available")],
      },
      {},
    ]);
    await answer();
    expect(told[0]!.messages[1]!.parts).toEqual(text("half"));
    expect(told[0]!.messages[2]!.parts).toEqual([call("c", "input-available")]);
  });

  test("leaves out parts that it doesn't want", async () => {
    const { store, answer, told } = sceneWith({
      context: { skipParts: ["reasoning", "data-*"] },
    });
    await store([
      { messageId: "only", parts: [{ type: "data-x", data: 1 }] },
      { messageId: "both", parts: [{ type: "reasoning", text: "hm" }, ...text("yes")] },
      {},
    ]);
    await answer();
    expect(ids(told[0]!.messages)).toEqual(["both", "message-3"]);
    expect(told[0]!.messages[0]!.parts).toEqual(text("yes"));
  });

  test("shows a message that was edited once, at its old place", async () => {
    const { store, answer, told } = sceneWith({ history: { tail: 3 } });
    await store(said(150));
    await store([
      { messageId: "m2", role: "assistant", replaces: 2, outcome: "completed", parts: text("new") },
      { messageId: "now" },
    ]);
    await answer();
    expect(ids(told[0]!.messages)).toEqual(["m149", "m150", "now"]);
  });
});

describe("the history for a regeneration", () => {
  test("is what was before the answer, however long ago", async () => {
    const { store, answer, told } = sceneWith({ history: { tail: 5 } });
    await store(said(400));
    await answer({ trigger: "regenerate", messageId: "m20", replaces: 20 });
    expect(ids(told[0]!.messages)).toEqual(["m15", "m16", "m17", "m18", "m19"]);
  });

  test("has the messages themselves where they have been summed up since", async () => {
    const { store, answer, told } = sceneWith({ history: { tail: 2 } });
    await store(said(6));
    await store([{ kind: "summary", role: "system", parts: text("short") }, ...said(1, 7)], {
      summarySeq: 7,
      compactedSeq: 6,
    });
    await answer({ trigger: "regenerate", messageId: "m4", replaces: 4 });
    expect(ids(told[0]!.messages)).toEqual(["m2", "m3"]);
    expect(told[0]!.summary).toBeUndefined();
  });
});

describe("an answer that goes on", () => {
  const asking = {
    messageId: "asks",
    role: "assistant" as const,
    author: "helper",
    outcome: "completed" as const,
    metadata: { model: "m" },
    parts: [
      ...text("let me look"),
      { type: "tool-look", toolCallId: "c", state: "input-available", input: 1 },
    ],
  };
  const result = {
    kind: "tool_result" as const,
    messageId: "r",
    parts: [],
    results: { messageId: "asks", results: [{ toolCallId: "c", output: "42" }] },
  };
  const facts = { trigger: "tool_result", messageId: "asks", replaces: 2 } as const;

  test("gets the message last, with the results, and keeps its parts so far", async () => {
    const { store, answer, told, live } = sceneWith();
    await store([{}, asking, { messageId: "meanwhile" }, result]);
    const reply = await answer(facts);
    expect(ids(told[0]!.messages)).toEqual(["message-1", "asks"]);
    const called = { toolCallId: "c", state: "output-available", input: 1, output: "42" };
    expect(told[0]!.messages[1]!.parts).toMatchObject([text("let me look")[0], called]);
    expect(reply).toMatchObject({
      outcome: "completed",
      metadata: { model: "m" },
      parts: [{ text: "let me look" }, called, { type: "text", text: "fine" }],
    });
    expect(JSON.stringify(reply.metadata)).toBe('{"model":"m"}');
    const chunks = live.flatMap((each) => each.chunks);
    expect(chunks[0]).toMatchObject({ type: "start", messageId: "asks" });
    expect(chunks.filter(({ type }) => type === "tool-output-available")).toHaveLength(1);
  });

  test("is cut where it fails, and the message isn't lost", async () => {
    const spec = agent("helper", { retries: 1 }, () => {
      throw new Error("no");
    });
    const { store, answer } = createRunnerHarness(spec);
    await store([{}, asking, result]);
    expect(await answer(facts)).toMatchObject({
      outcome: "cut",
      parts: [{ text: "let me look" }, { output: "42" }],
    });
  });
});
