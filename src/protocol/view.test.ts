import { describe, expect, test } from "vitest";
import type { Entry, ToolResult } from "./message.ts";
import { applyToolResults, createMessageView, type EntryNote, viewOf } from "./view.ts";

function entry(seq: number, fields: Partial<Entry> = {}): Entry {
  return {
    seq,
    kind: "message",
    role: "user",
    author: "ada",
    messageId: `m${seq}`,
    tokens: 1,
    parts: [{ type: "text", text: `said ${seq}` }],
    atMs: 1_000 + seq,
    ...fields,
  };
}
const texts = (entries: readonly Entry[]) =>
  viewOf(entries).map(({ parts }) => parts.map((part) => part["text"]).join());

describe("what a log shows", () => {
  test("is the messages in order, with their authors and how each ended", () => {
    const reply = { role: "assistant", author: "bot", epoch: 1, outcome: "cut" } as const;
    expect(viewOf([entry(1, { metadata: { mood: "good" } }), entry(2, reply)])).toEqual([
      {
        id: "m1",
        role: "user",
        metadata: { mood: "good", flotilla: { seq: 1, author: "ada", atMs: 1_001 } },
        parts: [{ type: "text", text: "said 1" }],
      },
      {
        id: "m2",
        role: "assistant",
        metadata: { flotilla: { seq: 2, author: "bot", atMs: 1_002, outcome: "cut" } },
        parts: [{ type: "text", text: "said 2" }],
      },
    ]);
  });

  test("has what was replaced in its place, however often it was", () => {
    const log = [
      entry(1),
      entry(2, { messageId: "a" }),
      entry(3),
      entry(4, { messageId: "a", replaces: 2 }),
      entry(5, { messageId: "a", replaces: 4 }),
    ];
    expect(texts(log)).toEqual(["said 1", "said 5", "said 3"]);
    expect(viewOf(log)[1]?.metadata).toMatchObject({ flotilla: { seq: 5 } });
  });

  test("has no summaries", () => {
    expect(texts([entry(1), entry(2, { kind: "summary", role: "system" }), entry(3)])).toEqual([
      "said 1",
      "said 3",
    ]);
  });

  test("has clients' results of calls in the message that made them", () => {
    const call = { type: "tool-locate", toolCallId: "c", state: "input-available", input: {} };
    const log = [
      entry(1, { messageId: "a", parts: [call] }),
      entry(2, {
        kind: "tool_result",
        parts: [],
        results: { messageId: "a", results: [{ toolCallId: "c", output: "Paris" }] },
      }),
    ];
    expect(viewOf(log).map(({ parts }) => parts)).toEqual([
      [{ ...call, state: "output-available", output: "Paris" }],
    ]);
    expect(log[0]?.parts).toEqual([call]);
    expect(viewOf(log, { after: 1 })).toHaveLength(1);
    expect(viewOf(log, { after: 2 })).toEqual([]);
  });

  test("is what has changed behind a position, where one is given", () => {
    const log = [entry(1), entry(2), entry(3, { messageId: "m1", replaces: 1 })];
    expect(viewOf(log, { after: 2 }).map(({ id }) => id)).toEqual(["m1"]);
  });

  test("keeps metadata that is no object", () => {
    expect(viewOf([entry(1, { metadata: "note" })])[0]?.metadata).toMatchObject({ value: "note" });
  });
});

describe("a client's answer to a call", () => {
  const asked = {
    type: "dynamic-tool",
    toolName: "pay",
    toolCallId: "c",
    state: "approval-requested",
    input: { sum: 5 },
    approval: { id: "p", requestReason: "money" },
  };
  const apply = (...results: ToolResult[]) => applyToolResults([asked], results)[0];

  test("is an error, or an answer to an approval request", () => {
    const { approval: _, ...call } = asked;
    expect(apply({ toolCallId: "c", errorText: "no" })).toEqual({
      ...call,
      state: "output-error",
      errorText: "no",
    });
    expect(
      apply({ toolCallId: "c", approved: false, approvalId: "p", reason: "too much" }),
    ).toEqual({
      ...asked,
      state: "approval-responded",
      approval: { id: "p", requestReason: "money", approved: false, reason: "too much" },
    });
  });

  test("counts once: the first answer stays", () => {
    const once = apply({ toolCallId: "c", approved: true });
    expect(
      apply({ toolCallId: "c", approved: true }, { toolCallId: "c", approved: false }),
    ).toEqual(once);
    const both = apply({ toolCallId: "c", approved: true }, { toolCallId: "c", output: 1 });
    expect(both).toMatchObject({
      state: "output-available",
      output: 1,
      approval: { approved: true },
    });
    expect(apply({ toolCallId: "c", output: 1 }, { toolCallId: "c", output: 2 })).toMatchObject({
      output: 1,
    });
  });

  test("is about nothing where there is no such call or approval", () => {
    expect(apply({ toolCallId: "d", output: 1 })).toBe(asked);
    expect(apply({ toolCallId: "c", approved: true, approvalId: "other" })).toBe(asked);
  });
});

test("a stop is a note of its answer with its author, and no message", () => {
  const reply = { role: "assistant", author: "bot", outcome: "stopped" } as const;
  const stop = { epoch: 2, messageId: "m4", by: "user" } as const;
  const log = [
    entry(1),
    entry(2, { ...reply, epoch: 1 }),
    entry(3, { kind: "stop", author: "bea", parts: [], stop }),
    entry(4, { ...reply, epoch: 2 }),
    entry(5, { ...reply, epoch: 3, outcome: "completed" }),
  ];
  const notes = viewOf(log).map(({ metadata }) => (metadata as { flotilla: EntryNote }).flotilla);
  const stopped = { author: "bea", by: "user", atMs: 1_003 };
  expect(notes.map((note) => note.seq)).toEqual([1, 2, 4, 5]);
  expect(notes.map((note) => note.stopped)).toEqual([undefined, undefined, stopped, undefined]);
});

describe("what a growing log shows", () => {
  test("is what all of it shows, and what hasn't changed is the same object", () => {
    const view = createMessageView();
    const log = [entry(1), entry(2, { messageId: "a" }), entry(3)];
    for (const each of log) view.add(each);
    const before = view.messages();
    expect(before).toEqual(viewOf(log));

    const again = entry(4, { messageId: "a", replaces: 2 });
    view.add(again);
    const after = view.messages();
    expect(after).toEqual(viewOf([...log, again]));
    expect(after[0]).toBe(before[0]);
    expect(after[1]).not.toBe(before[1]);
    expect(after[2]).toBe(before[2]);
    expect(before[1]!.parts).toEqual([{ type: "text", text: "said 2" }]);
    expect([view.indexOf("a"), view.indexOf("m3"), view.indexOf("b")]).toEqual([1, 2, -1]);
  });
});
