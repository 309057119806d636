import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { closeCodes } from "./frames.ts";
import {
  clientFrameTypes,
  parseClientFrame,
  parseServerFrames,
  refOf,
  serverFrameTypes,
} from "./parse-frame.ts";

const page = readFileSync(new URL("../../docs/protocol.md", import.meta.url), "utf8");

/** The frames that a part of the page shows. */
function examplesOf(heading: string): { type: string }[] {
  const part = page.split(/^## /m).find((each) => each.startsWith(heading))!;
  return [...part.matchAll(/```json\n([\s\S]*?)```/g)].map(([, text]) => JSON.parse(text!));
}

describe("docs/protocol.md", () => {
  const asked = examplesOf("Frames of a client");
  const answered = examplesOf("Frames of a server");

  test("shows every frame that there is, and no other", () => {
    expect(asked.map(({ type }) => type).toSorted()).toEqual(clientFrameTypes.toSorted());
    expect(answered.map(({ type }) => type).toSorted()).toEqual(serverFrameTypes.toSorted());
  });

  test.each(asked)("has a $type that a server takes, whole", (frame) => {
    expect(parseClientFrame(frame)).toEqual(frame);
  });

  test.each(answered)("has a $type that a client takes", (frame) => {
    expect(parseServerFrames(JSON.stringify([frame]))).toEqual([frame]);
    const { type: _, ...rest } = frame;
    for (const name of Object.keys(rest)) {
      const optional = ["user", "expiresAtMs", "seq", "messageId", "retryAfterMs"];
      if (optional.includes(name) || (name === "ref" && /error|left/.test(frame.type))) continue;
      expect(() => parseServerFrames(JSON.stringify([{ ...frame, [name]: null }]))).toThrow(name);
    }
  });

  test("gives the reason of every close code of ours", () => {
    for (const code of Object.values(closeCodes)) expect(page).toContain(`| ${code} |`);
  });
});

describe("a frame of a client", () => {
  const join = { type: "join", ref: 1, session: "s" };

  test.each([0, 1, 2 ** 53 - 1])("may have the place %d", (lastSeq) => {
    expect(parseClientFrame({ ...join, lastSeq })).toEqual({ ...join, lastSeq });
  });

  test.each(["-1", "1e400", '"1"', "9007199254740993", "1.5", "null", "[]", "true"])(
    "may not have the place %s",
    (lastSeq) => {
      const text = `{"type":"join","ref":1,"session":"s","lastSeq":${lastSeq}}`;
      expect(() => parseClientFrame(JSON.parse(text))).toThrow(
        expect.objectContaining({ code: "invalid_input", details: { what: "lastSeq" } }),
      );
    },
  );

  test.each([
    ["nothing", null, "a frame"],
    ["a list", [], "a frame"],
    ["no ref", { type: "ping" }, "ref"],
    ["a ref that is too long", { type: "ping", ref: "r".repeat(65) }, "ref"],
    ["a ref that isn't one", { type: "ping", ref: {} }, "ref"],
    ["no type", { ref: 1 }, "type"],
    ["a type that every object has", { ref: 1, type: "constructor" }, "type"],
    ["no session", { type: "leave", ref: 1 }, "session"],
    ["an endless session", { type: "leave", ref: 1, session: "s".repeat(201) }, "session"],
    ["no message", { type: "send", ref: 1, session: "s" }, "message"],
    ["no parts", { type: "send", ref: 1, session: "s", message: {} }, "parts"],
    [
      "a part without a type",
      { type: "send", ref: 1, session: "s", message: { parts: [{}] } },
      "parts",
    ],
    [
      "a part that is a list",
      { type: "send", ref: 1, session: "s", message: { parts: [[]] } },
      "parts",
    ],
    [
      "too many parts",
      { type: "send", ref: 1, session: "s", message: { parts: Array(1_001).fill({ type: "x" }) } },
      "parts",
    ],
    [
      "a role that there isn't",
      { type: "send", ref: 1, session: "s", message: { role: "god", parts: [] } },
      "role",
    ],
    [
      "no results",
      { type: "tool_result", ref: 1, session: "s", messageId: "m", results: [] },
      "results",
    ],
    [
      "a result of nothing",
      {
        type: "tool_result",
        ref: 1,
        session: "s",
        messageId: "m",
        results: [{ toolCallId: "c" }],
      },
      "results",
    ],
    ["half an epoch", { type: "stop", ref: 1, session: "s", epoch: 0.5 }, "epoch"],
    ["no token", { type: "token", ref: 1, token: "" }, "token"],
  ])("is refused with %s", (_, frame, what) => {
    expect(() => parseClientFrame(frame)).toThrow(
      expect.objectContaining({ code: "invalid_input", details: { what } }),
    );
  });

  test("gets nothing from its `__proto__`", () => {
    const text = `{"type":"send","ref":1,"__proto__":{"session":"s","message":{"parts":[]}}}`;
    expect(() => parseClientFrame(JSON.parse(text))).toThrow("session");
    const inside = `{"type":"send","ref":1,"session":"s","message":{"parts":[],"__proto__":{"role":"system"}}}`;
    expect(parseClientFrame(JSON.parse(inside))).toEqual({
      type: "send",
      ref: 1,
      session: "s",
      message: { parts: [] },
    });
    expect(({} as { role?: string }).role).toBeUndefined();
  });

  test("may have fields that aren't known yet", () => {
    expect(parseClientFrame({ type: "ping", ref: 1, mood: "good" })).toEqual({
      type: "ping",
      ref: 1,
    });
  });

  test("has its ref even where the rest is wrong", () => {
    expect(refOf({ ref: "a", type: 7 })).toBe("a");
    expect(refOf({ ref: 0 })).toBe(0);
    for (const ref of ["", 1.5, null, [], 2 ** 53]) expect(refOf({ ref })).toBeUndefined();
    expect(refOf(null)).toBeUndefined();
  });
});

test("unknown frames of a newer server are left out", () => {
  expect(parseServerFrames(`[{"type":"weather"},{"type":"pong","ref":1}]`)).toEqual([
    { type: "pong", ref: 1 },
  ]);
  for (const text of ["{}", "[1]", `[null]`])
    expect(() => parseServerFrames(text)).toThrow("cannot read the server's message");
});
