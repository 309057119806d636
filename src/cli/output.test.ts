import { expect, test } from "vitest";
import { sanitize } from "./output.ts";

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
