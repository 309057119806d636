import { expect, test } from "vitest";
import { columns, oneLine, paintStatus, sanitize } from "./output.ts";

test.each([
  ["\u001b[2Jgone", "\\x1b[2Jgone"],
  ["\u001b]0;title\u0007", "\\x1b]0;title\\x07"],
  ["\u009b31m", "\\x9b31m"],
  ["over\rwritten", "over\\x0dwritten"],
  ["a\bb\u007f", "a\\x08b\\x7f"],
  ["user\u202etxt.exe", "user\\u{202e}txt.exe"],
  ["\u2066isolated\u2069", "\\u{2066}isolated\\u{2069}"],
  ["zero\u200bwidth\ufeff", "zero\\u{200b}width\\u{feff}"],
  ["tag\u{e0041}", "tag\\u{e0041}"],
  ["half \ud83d of a pair", "half \ufffd of a pair"],
])("%j is shown as %s", (text, shown) => {
  expect(sanitize(text)).toBe(shown);
});

test("what people write stays as it is", () => {
  const text = "Grüße,\n\tשלום, 你好, می‌خواهم, 👩‍👩‍👧";
  expect(sanitize(text)).toBe(text);
});

test("text of others is on one line, and what is invisible in it is shown", () => {
  expect(oneLine("a\nb\u001b[2J\u202ec\u200b", 100)).toBe("a b [2J\\u{202e}c\\u{200b}");
  expect(oneLine(undefined as never, 100)).toBe("undefined");
});

test("cells are sanitized and stay on their line, with the colours of the command", () => {
  const painted = "\u001b[32mup\u001b[39m";
  const shown = columns([
    ["id\u001b[2J\u001b]0;title\u0007", painted, "\u202ex\ny"],
    ["\u001b[8mhidden", "b", "c"],
  ]);
  expect(shown).toBe(
    `id\\x1b[2J\\x1b]0;title\\x07  ${painted}  \\u{202e}x y\n\\x1b[8mhidden              b   c`,
  );
});

test.each(["later", "constructor", "__proto__"])("the unknown state %s is plain", (state) => {
  expect(paintStatus(state as never)).toBe(state);
});
