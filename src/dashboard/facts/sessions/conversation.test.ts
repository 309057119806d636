import { describe, expect, test } from "vitest";
import type { Entry, Part } from "../../../protocol/message.ts";
import { callStateOf, conversationOf, openCallOf } from "./conversation.ts";

const entry = (seq: number, more: Partial<Entry> = {}): Entry => ({
  seq,
  kind: "message",
  role: "user",
  author: "ada",
  messageId: `m${seq}`,
  tokens: 1,
  parts: [{ type: "text", text: `word ${seq}` }],
  atMs: seq,
  ...more,
});
const order: Part = {
  type: "tool-order",
  toolCallId: "c1",
  state: "approval-requested",
  input: { item: "coffee" },
  approval: { id: "a1" },
};
const asks = entry(2, {
  role: "assistant",
  author: "helper",
  messageId: "answer",
  epoch: 1,
  outcome: "completed",
  parts: [order],
});
const approves = entry(3, {
  kind: "tool_result",
  author: "bob",
  parts: [],
  results: {
    messageId: "answer",
    results: [{ toolCallId: "c1", approvalId: "a1", approved: true }],
  },
});

describe("a conversation", () => {
  test("has each message once, at its first place, with its newest content and the results since", () => {
    const replaced = entry(4, {
      role: "assistant",
      messageId: "answer",
      replaces: 2,
      epoch: 2,
      outcome: "completed",
      parts: [order, { type: "text", text: "done" }],
    });
    const items = conversationOf([entry(1), asks, approves], undefined);
    expect(items.map(({ key }) => key)).toEqual(["m1", "answer"]);
    expect(items[1]).toMatchObject({
      parts: [{ state: "approval-responded", approval: { id: "a1", approved: true } }],
      sent: [{ author: "bob", seq: 3 }],
    });
    const later = conversationOf([entry(1), asks, approves, replaced, entry(5)], undefined);
    expect(later.map(({ key }) => key)).toEqual(["m1", "answer", "m5"]);
    expect(later[1]).toMatchObject({ entry: { seq: 4 }, parts: [{}, { text: "done" }] });
  });

  test("says who stopped an answer, and shows summaries where they are", () => {
    const items = conversationOf(
      [
        entry(1),
        entry(2, { kind: "stop", stop: { epoch: 1, messageId: "x", by: "user" }, author: "eve" }),
        entry(3, { role: "assistant", messageId: "x", epoch: 1, outcome: "stopped" }),
        entry(4, { kind: "summary", throughSeq: 3 }),
      ],
      undefined,
    );
    expect(items.map(({ type }) => type)).toEqual(["message", "message", "summary"]);
    expect(items[1]).toMatchObject({ stoppedBy: "eve" });
  });

  test("goes on with the answer that is being made, at its own place", () => {
    const live = { epoch: 2, attempt: 1, agent: "helper", parts: [{ type: "text", text: "no" }] };
    const fresh = conversationOf([entry(1)], { ...live, messageId: "new" });
    expect(fresh.at(-1)).toMatchObject({ type: "answer", key: "new" });
    const continued = conversationOf([entry(1), asks, approves, entry(4)], {
      ...live,
      messageId: "answer",
    });
    expect(continued).toHaveLength(3);
    expect(continued[1]).toMatchObject({ isLive: true, parts: [{ text: "no" }] });
  });

  test("of a log that begins in the middle leaves out results for what isn't there", () => {
    expect(conversationOf([approves, entry(4)], undefined).map(({ key }) => key)).toEqual(["m4"]);
  });
});

describe("a call", () => {
  test("that waits for a person says for what", () => {
    expect(openCallOf(order, "m")).toEqual({
      messageId: "m",
      toolCallId: "c1",
      tool: "order",
      approvalId: "a1",
    });
    const later = { flotilla: { later: { signal: "word" } } };
    const waits = { ...order, state: "input-available", callProviderMetadata: later };
    expect(openCallOf(waits, "m")).toMatchObject({ signal: "word" });
    expect(callStateOf(waits)).toEqual(["waits for a signal", "warn"]);
    expect(openCallOf({ ...order, state: "output-available" }, "m")).toBeUndefined();
    expect(openCallOf({ ...order, state: "input-available" }, "m")).toBeUndefined();
    expect(openCallOf({ type: "text", text: "x" }, "m")).toBeUndefined();
  });

  test("has its state in words, also one that isn't known", () => {
    const responded = { ...order, state: "approval-responded" };
    expect(callStateOf({ ...responded, approval: { approved: true } })).toEqual([
      "approved",
      "accent",
    ]);
    expect(callStateOf({ ...responded, approval: "object, 1 key" })).toEqual(["denied", "wrong"]);
    expect(callStateOf({ ...order, state: "new-state" })).toEqual(["new-state", "plain"]);
  });
});
