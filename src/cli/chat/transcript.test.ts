import { describe, expect, test } from "vitest";
import type { Entry } from "../../protocol/message.ts";
import type { FeedEvent } from "../../sessions/service.ts";
import { createTranscript, type TranscriptOptions } from "./transcript.ts";

/** What a terminal would show, and the transcript that writes it. */
function onOutput(form: TranscriptOptions["form"]) {
  let text = "";
  let isOpen = false;
  const end = () => {
    if (isOpen) text += "\n";
    isOpen = false;
  };
  const paper: TranscriptOptions["output"] = {
    line(line) {
      end();
      text += `${line}\n`;
    },
    more(piece) {
      if (piece !== "") isOpen = true;
      text += piece;
    },
    end,
  };
  return { transcript: createTranscript({ output: paper, form }), text: () => text };
}

const catchingUp = {
  state: "catching_up",
  epoch: 1,
  attempt: 1,
  agent: "helper",
  messageId: "a",
  upToSeq: 1,
  stopping: false,
} as const;
const joined: FeedEvent = { type: "joined", lastSeq: 1, incarnation: "i", state: catchingUp };
const said = (seq: number, text: string, more: Partial<Entry> = {}): Entry => ({
  seq,
  kind: "message",
  role: "user",
  author: "ada",
  messageId: `m${seq}`,
  tokens: 1,
  parts: [{ type: "text", text }],
  atMs: 1,
  ...more,
});
const answer = (seq: number, text: string, more: Partial<Entry> = {}) =>
  said(seq, text, { role: "assistant", author: "helper", epoch: 1, outcome: "completed", ...more });
const entries = (...all: Entry[]): FeedEvent => ({ type: "entries", entries: all });
const deltas = (index: number, texts: string[], more = {}): FeedEvent => ({
  type: "chunks",
  epoch: 1,
  attempt: 1,
  index,
  chunks: texts.map((delta) => ({ type: "text-delta", id: "t", delta })),
  ...more,
});

describe("a conversation in the terminal", () => {
  test("shows an answer as it comes, and its end once", () => {
    const { transcript, text } = onOutput("live");
    for (const event of [joined, deltas(0, ["Hel"]), deltas(1, ["lo ", "Ada"])]) {
      transcript.event(event);
    }
    expect(text()).toBe("helper: Hello Ada");
    transcript.event(entries(answer(2, "Hello Ada!")));
    expect(text()).toBe("helper: Hello Ada!\n");
    expect(transcript.place).toEqual({ lastSeq: 2, incarnation: "i", lastMessageId: "m2" });
  });

  test("shows once that its turn waits for a permit, and its place", () => {
    const { transcript, text } = onOutput("live");
    const waits = (index: number, data: object | null, more = {}): FeedEvent => ({
      type: "chunks",
      epoch: 1,
      attempt: 1,
      index,
      chunks: [{ type: "data-waiting", transient: true, data }],
      ...more,
    });
    const state = { ...catchingUp, state: "waiting" } as const;
    transcript.event({ ...joined, state });
    transcript.event(waits(0, { ahead: 3, aboutMs: 4_200 }));
    transcript.event(waits(1, { ahead: 2 }));
    transcript.event(waits(0, { ahead: 1 }, { nextIndex: 3 }));
    expect(text()).toBe("(waiting for a permit: 3 ahead of it, about 4 s)\n");
    transcript.event(waits(0, { ahead: 0 }, { attempt: 2 }));
    transcript.event(waits(1, null, { attempt: 2 }));
    transcript.event(deltas(2, ["Hello"], { attempt: 2 }));
    expect(text().split("\n").slice(1)).toEqual([
      "(waiting for a permit: next in line)",
      "helper: Hello",
    ]);
    const lines = onOutput("lines");
    lines.transcript.event({ ...joined, state });
    lines.transcript.event(waits(0, { ahead: 3 }));
    expect(lines.text()).toBe("");
  });

  test("goes on in the middle where it has come back, and shows nothing twice", () => {
    const { transcript, text } = onOutput("live");
    transcript.event(joined);
    transcript.event(entries(said(1, "hi")));
    transcript.event(deltas(0, ["one ", "two "]));
    transcript.event(joined);
    transcript.event(entries(said(1, "hi")));
    transcript.event(deltas(0, ["one two three "], { nextIndex: 3 }));
    transcript.event(deltas(3, ["four"]));
    expect(text()).toBe("ada: hi\nhelper: one two three four");
  });

  test("shows where an answer is regenerated, and what is stored in the end", () => {
    const { transcript, text } = onOutput("live");
    transcript.event(joined);
    transcript.event(deltas(0, ["first"]));
    transcript.event(deltas(0, ["second"], { attempt: 2 }));
    transcript.event(deltas(1, [" late"]));
    transcript.event(entries(answer(2, "another", { outcome: "stopped" })));
    expect(text()).toBe(
      "helper: first\n(the answer starts over)\nhelper: second\nhelper: another\n(stopped)\n",
    );
  });

  test("leaves out what comes after a gap until it is stored", () => {
    const { transcript, text } = onOutput("live");
    transcript.event(joined);
    transcript.event(deltas(0, ["a"]));
    transcript.event(deltas(2, ["c"]));
    expect(text()).toBe("helper: a");
    transcript.event(entries(answer(2, "abc")));
    expect(text()).toBe("helper: abc\n");
  });

  test("writes out what could harm a terminal, also where it comes in pieces", () => {
    const { transcript, text } = onOutput("live");
    transcript.event(joined);
    transcript.event(deltas(0, ["\u001b", "[2J", "\u202e", "\ud83d", "\ude00"]));
    expect(text()).toBe("helper: \\x1b[2J\\u{202e}😀");
    const hostile = {
      author: "\u001b[31m\u202eada",
      parts: [
        { type: "text", text: "\u009b2J" },
        { type: "tool-x\u001b]0;", state: "\u001b[1m", input: { "\u001b": "\u202e" } },
        { type: "data-\u2066", data: "\r" },
      ],
      outcome: "cut" as const,
      error: { code: "\u001b", message: "\u202e\u0007" },
    };
    transcript.event(entries(said(5, "", hostile)));
    expect(text()).not.toMatch(
      // oxlint-disable-next-line no-control-regex
      /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/,
    );
  });

  test("is a line for each message where it is piped, and JSON with --json", () => {
    const piped = onOutput("lines");
    const json = onOutput("json");
    const tool = { type: "tool-weather", state: "output-available", input: 1, output: "sun" };
    for (const { transcript } of [piped, json]) {
      transcript.event(joined);
      transcript.event(deltas(0, ["never shown"]));
      transcript.event(entries(said(1, "two\nlines")));
      transcript.event(entries(answer(2, "so", { parts: [tool, { type: "text", text: "so" }] })));
      const failed = {
        outcome: "failed",
        error: { code: "agent_missing", message: "gone" },
      } as const;
      transcript.event(entries(answer(3, "", { ...failed, parts: [] })));
      transcript.notice("(connection lost)");
    }
    expect(piped.text().split("\n")).toEqual([
      "ada: two\\nlines",
      'helper: [weather 1 → "sun"]\\nso',
      "helper: (failed: agent_missing: gone)",
      "(connection lost)",
      "",
    ]);
    const lines = json.text().trimEnd().split("\n");
    expect(lines.map((line) => (JSON.parse(line) as Entry).seq)).toEqual([1, 2, 3]);
  });

  test("shows no second time what was typed here, and forgets its place on a reset", () => {
    const { transcript, text } = onOutput("live");
    transcript.typed("m1");
    transcript.event(entries(said(1, "hi"), said(2, "from elsewhere")));
    expect(text()).toBe("ada: from elsewhere\n");
    transcript.event({ type: "reset", reason: "mismatch" });
    expect(transcript.place.lastSeq).toBe(0);
    transcript.event(entries(said(1, "hi")));
    expect(text()).toContain("showing it from the start)\nada: hi\n");
  });
});
