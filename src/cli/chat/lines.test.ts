import { describe, expect, test } from "vitest";
import { readLine } from "./lines.ts";

describe("a line of a chat", () => {
  test.each([
    ["hello", { type: "say", text: "hello" }],
    [" /file is said ", { type: "say", text: " /file is said " }],
    ["//file is said", { type: "say", text: "/file is said" }],
    ["/file a.png", { type: "file", path: "a.png", text: "" }],
    [
      '/file "my photo.png"  what is this?',
      { type: "file", path: "my photo.png", text: "what is this?" },
    ],
    ["/fork", { type: "fork", atSeq: undefined }],
    ["/fork 12", { type: "fork", atSeq: 12 }],
    ["/fork #12 ", { type: "fork", atSeq: 12 }],
    ["/edit in French", { type: "edit", seq: undefined, text: "in French" }],
    ["/edit #3 in French", { type: "edit", seq: 3, text: "in French" }],
    ["/edit 3 apples", { type: "edit", seq: undefined, text: "3 apples" }],
    ["/wake", { type: "wakes" }],
    [
      "/wake 10m is it there?",
      { type: "wake", when: { afterMs: 600_000 }, message: "is it there?" },
    ],
    [
      "/wake 2026-01-31T08:00:00Z",
      { type: "wake", when: { at: "2026-01-31T08:00:00Z" }, message: "" },
    ],
    ["/wake cancel chat-1", { type: "cancel_wake", key: "chat-1" }],
    ["/help", { type: "help" }],
  ])("%s", (line, wanted) => {
    expect(readLine(line)).toEqual(wanted);
  });

  test.each([
    ["/", "there is no /: /help lists commands, and //… says it"],
    ["/files a.png", "there is no /files: /help lists commands, and //… says it"],
    ["/file", "/file needs a path: /file photo.png What is this?"],
    ["/fork 0", "the place is the number of an entry: /fork 12"],
    ["/fork here", "the place is the number of an entry: /fork 12"],
    ["/edit", "/edit needs what to say instead: /edit In French, please."],
    ["/edit #3", "/edit needs what to say instead: /edit In French, please."],
    ["/wake soon", "/wake needs a time such as 10m, 2h or 2026-01-31T08:00:00Z, not soon"],
    ["/wake 10", "/wake needs a time such as 10m, 2h or 2026-01-31T08:00:00Z, not 10"],
    ["/wake cancel", "/wake cancel needs the key that /wake shows"],
  ])("%s says what is wrong", (line, wanted) => {
    expect(() => readLine(line)).toThrow(wanted);
  });
});
