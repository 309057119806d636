import { describe, expect, test } from "vitest";
import { linkIn, piecesOf, visibleLine } from "./visible.ts";

describe("stored text", () => {
  test("shows characters that hide or turn others around by their names", () => {
    expect(piecesOf("pay\u202e001\u202c!")).toEqual([
      { text: "pay" },
      { hidden: "U+202E" },
      { text: "001" },
      { hidden: "U+202C" },
      { text: "!" },
    ]);
    const hidden = ["\u0000", "\u001b", "\u007f", "\u0085", "\u200b", "\u2028", "\u2066", "\ufeff"];
    const blank = ["\u{e0041}", "\u{e0101}", "\ufe01", "\u034f", "\u115f", "\u3164", "\u2800"];
    for (const each of [...hidden, ...blank, "\ud800"])
      expect(piecesOf(each)).toEqual([{ hidden: expect.stringMatching(/^U\+[0-9A-F]{4,6}$/) }]);
  });

  test("is left as it is otherwise: lines, tabs, emoji, scripts from the right", () => {
    const text = "a\n\tb ❤\ufe0f 👩‍👩‍👧 שלום नमस्ते";
    expect(piecesOf(text)).toEqual([{ text }]);
    expect(piecesOf("")).toEqual([]);
  });

  test("fits a line", () => {
    expect(visibleLine("a\nb\u202ec", 5)).toBe("a bU+202Ec");
    expect(visibleLine("x".repeat(500), 10)).toBe(`${"x".repeat(10)}…`);
  });
});

describe("a link in stored text", () => {
  test.each([
    ["https://example.org/a?b=c", "example.org"],
    ["HTTP://example.org:8080", "example.org:8080"],
    ["https://good.example@evil.example/", "evil.example"],
    ["https://аpple.example/", "xn--pple-43d.example"],
  ])("is named by the host it leads to: %s", (text, host) => {
    expect(linkIn(text)?.host).toBe(host);
  });

  test.each([
    "javascript:alert(1)",
    "JaVaScRiPt:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "https://",
    "https://a b",
    "see https://example.org",
    "//example.org",
    "file:///etc/passwd",
    `https://example.org/${"a".repeat(3_000)}`,
  ])("is none: %s", (text) => {
    expect(linkIn(text)).toBeUndefined();
  });
});
