import { describe, expect, test } from "vitest";
import { blocksOf } from "../../../examples/chat/src/lib/prose.ts";

const plain = (text: string) => ({ type: "plain", text });
const spans = (text: string) =>
  blocksOf(text).flatMap((block) => (block.type === "text" ? block.spans : [block]));

describe("a message's text", () => {
  test("is shown as it is, lines and spaces too", () => {
    expect(spans("one\n\n  two")).toEqual([plain("one\n\n  two")]);
    expect(blocksOf("")).toEqual([]);
  });

  test("has code separated, in a fence or in a line", () => {
    expect(blocksOf("see:\n```ts\nconst a = `b`;\n```\nor `c`.")).toEqual([
      { type: "text", spans: [plain("see:")] },
      { type: "code", language: "ts", text: "const a = `b`;" },
      { type: "text", spans: [plain("or "), { type: "code", text: "c" }, plain(".")] },
    ]);
  });

  test("has code to its end while the fence isn't closed yet", () => {
    expect(blocksOf("```\na\n\nb")).toEqual([{ type: "code", language: "", text: "a\n\nb" }]);
  });

  test("has links to pages, without what ends the sentence", () => {
    expect(spans("go to https://example.com/a?b=c#d, now (http://x.y/z).")).toEqual([
      plain("go to "),
      { type: "link", text: "https://example.com/a?b=c#d" },
      plain(", now ("),
      { type: "link", text: "http://x.y/z" },
      plain(")."),
    ]);
  });

  test.each([
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "[click](javascript:alert(1))",
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "file:///etc/passwd",
    "https://",
    "&lt;b&gt;",
  ])("leads nowhere and is no markup: %s", (text) => {
    expect(spans(text)).toEqual([plain(text)]);
  });

  test("never names an image to load", () => {
    expect(spans("![x](https://evil.example/x.png)")).toEqual([
      plain("![x]("),
      { type: "link", text: "https://evil.example/x.png" },
      plain(")"),
    ]);
  });

  test("takes no longer than it is long", () => {
    const hostile = ["`", "https://", "```", "(", "<"].map((each) => each.repeat(50_000));
    for (const text of hostile) expect(blocksOf(text).length).toBeLessThan(2);
  });
});
