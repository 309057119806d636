import { describe, expect, test } from "vitest";
import type { Part, ToolResult } from "../../protocol/message.ts";
import { type ConversationHarness, startConversation } from "../contract/conversation-harness.ts";
import { approvalsOf, maxApprovals } from "./approvals.ts";
import type { Turn } from "./header.ts";

const toApprove = (id: string): Part => ({
  type: "tool-pay",
  toolCallId: id,
  state: "approval-requested",
  input: { amount: 5 },
  approval: { id: `approval-${id}` },
});
const toSignal = (id: string, untilMs?: number): Part => ({
  type: "dynamic-tool",
  toolName: "ask",
  toolCallId: id,
  state: "input-available",
  input: {},
  callProviderMetadata: {
    flotilla: { later: { signal: "go", ...(untilMs !== undefined && { untilMs }) } },
  },
});
const ofClient = (id: string): Part => ({
  type: "tool-locate",
  toolCallId: id,
  state: "input-available",
  input: {},
});

function answer(
  talk: ConversationHarness,
  parts: readonly Part[],
  outcome: "completed" | "stopped" = "completed",
): string {
  const { epoch, attempt, messageId } = talk.header.work as Turn;
  const reply = { outcome, parts, tokens: 1 } as const;
  talk.ask({ type: "turn_finished", epoch, attempt, reply });
  return messageId;
}

function decide(talk: ConversationHarness, messageId: string, results: readonly ToolResult[]) {
  const { seq, author } = talk.entries.findLast((each) => each.messageId === messageId)!;
  const target = { seq, author, messageId };
  const clientId = `result-${talk.header.lastSeq}`;
  return talk.ask({
    type: "tool_result",
    clientId,
    author: "ann",
    messageId,
    results,
    target,
    tokens: 1,
  });
}

const waiting = (talk: ConversationHarness) =>
  approvalsOf(talk.header).map(({ toolCallId }) => toolCallId);

describe("the calls of a session that wait for a person", () => {
  test("are those that an answer leaves to be approved, or to a signal, since then", () => {
    const talk = startConversation();
    talk.say("pay");
    talk.nowMs = 5_000;
    const messageId = answer(talk, [toApprove("a"), ofClient("b"), toSignal("c", 9_000)]);
    expect(approvalsOf(talk.header)).toEqual([
      { messageId, toolCallId: "a", tool: "pay", approvalId: "approval-a", sinceMs: 5_000 },
      { messageId, toolCallId: "c", tool: "ask", signal: "go", untilMs: 9_000, sinceMs: 5_000 },
    ]);
  });

  test("are none before the first, and then the header says nothing of it", () => {
    const talk = startConversation();
    talk.say("hello");
    talk.finish("hello");
    expect(talk.header).not.toHaveProperty("approvals");
  });

  test("end with the result that decides them, and not with one for another approval", () => {
    const talk = startConversation();
    talk.say("pay");
    const messageId = answer(talk, [toApprove("a"), toApprove("b")]);
    decide(talk, messageId, [{ toolCallId: "a", approved: true, approvalId: "another" }]);
    expect(waiting(talk)).toEqual(["a", "b"]);
    answer(talk, [toApprove("a"), toApprove("b")]);
    decide(talk, messageId, [{ toolCallId: "a", approved: false }]);
    expect(waiting(talk)).toEqual(["b"]);
  });

  test("go on while others talk, and wait since they began", () => {
    const talk = startConversation();
    talk.say("pay");
    const messageId = answer(talk, [toApprove("a")]);
    talk.nowMs = 9_000;
    talk.say("and the weather?");
    answer(talk, [toSignal("w")]);
    expect(waiting(talk)).toEqual(["a", "w"]);
    decide(talk, messageId, [{ toolCallId: "x", output: 1 }]);
    answer(talk, [toApprove("a")]);
    expect(approvalsOf(talk.header).find(({ toolCallId }) => toolCallId === "a")).toMatchObject({
      sinceMs: 1_000,
    });
  });

  test("end with an answer that replaces theirs, or that was stopped", () => {
    const talk = startConversation();
    talk.say("pay");
    const messageId = answer(talk, [toApprove("a")]);
    const { seq, author } = talk.entries.at(-1)!;
    talk.ask({ type: "regenerate", clientId: "r", target: { seq, author, messageId } });
    expect(waiting(talk)).toEqual(["a"]);
    answer(talk, [{ type: "text", text: "no" }]);
    expect(waiting(talk)).toEqual([]);
    talk.say("pay again");
    answer(talk, [toApprove("b")], "stopped");
    expect(waiting(talk)).toEqual([]);
  });

  test("are not known any more once a pod of an earlier release has stored an entry", () => {
    const talk = startConversation();
    talk.say("pay");
    answer(talk, [toApprove("a")]);
    const { header } = talk;
    expect(approvalsOf({ ...header, lastSeq: header.lastSeq + 1 })).toEqual([]);
  });

  test("are bounded, and go with the session", () => {
    const talk = startConversation();
    talk.say("pay");
    const many = Array.from({ length: maxApprovals + 5 }, (_, at) => toApprove(`call-${at}`));
    answer(talk, [...many, toApprove("x".repeat(501))]);
    expect(waiting(talk)).toHaveLength(maxApprovals);
    talk.ask({ type: "delete" });
    expect(waiting(talk)).toEqual([]);
  });
});
