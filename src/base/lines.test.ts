import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createLines, type LinesOptions } from "./lines.ts";

const utf8 = new TextEncoder();

/** Reads text that arrives in pieces of these sizes, in a buffer that is used again. */
function read(text: string, sizes: readonly number[], options: Partial<LinesOptions> = {}) {
  const lines = createLines({ maxLineBytes: 1_000, returns: true, ...options });
  const bytes = utf8.encode(text);
  const found: (string | undefined)[] = [];
  for (let from = 0, nth = 0; from < bytes.length; nth++) {
    const piece = bytes.slice(from, from + (sizes[nth] ?? bytes.length));
    from += piece.length;
    found.push(...lines.push(piece).lines);
    piece.fill(0x7b);
  }
  return [...found, ...lines.end()];
}

const anyText = fc.array(fc.constantFrom("a", "é", "😀", "\n", "\r", "\r\n", "\ufeff"), {
  maxLength: 30,
});
const anySizes = fc.array(fc.integer({ min: 1, max: 5 }), { maxLength: 100 });

describe("lines", () => {
  test("are the same however their bytes are cut, even within a character", () => {
    fc.assert(
      fc.property(anyText, anySizes, fc.boolean(), (pieces, sizes, returns) => {
        const text = pieces.join("");
        const whole = text.replace(/^\ufeff/, "").split(returns ? /\r\n|\n|\r/ : "\n");
        if (whole.at(-1) === "") whole.pop();
        // A mark alone is bytes without an end, so that it is a line of its own.
        if (text === "\ufeff") whole.push("");
        expect(read(text, sizes, { returns })).toEqual(whole);
      }),
      { numRuns: 1_000 },
    );
  });

  test("that are too long are dropped, and those after them are read", () => {
    fc.assert(
      fc.property(anyText, anySizes, (pieces, sizes) => {
        const text = pieces.join("").replaceAll("\ufeff", "b");
        const fits = (line: string | undefined) => utf8.encode(line).length <= 4;
        const all = read(text, []).map((line) => (fits(line) ? line : undefined));
        expect(read(text, sizes, { maxLineBytes: 4 })).toEqual(all);
      }),
      { numRuns: 1_000 },
    );
  });

  test("are known to be too long before they end, and are not kept", () => {
    const lines = createLines({ maxLineBytes: 3, returns: false });
    expect(lines.push(utf8.encode("ab"))).toEqual({ lines: [], tooLong: false });
    expect(lines.push(utf8.encode("cd"))).toEqual({ lines: [], tooLong: true });
    expect(lines.push(utf8.encode("\nabc\nabcd"))).toEqual({
      lines: [undefined, "abc"],
      tooLong: true,
    });
    expect(lines.end()).toEqual([undefined]);
  });

  test("are decoded as the caller wants", () => {
    const decode = (bytes: Uint8Array) => bytes.length;
    const lines = createLines({ maxLineBytes: 10, returns: false, decode });
    expect(lines.push(utf8.encode("é\n\nabc"))).toEqual({ lines: [2, 0], tooLong: false });
    expect(lines.end()).toEqual([3]);
  });
});
