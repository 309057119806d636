import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { ExactNumber, parseExact, writeExact } from "./exact-json.ts";

describe("JSON that is shown", () => {
  test.each([
    "12345678901234567890",
    "-9007199254740993",
    "0.1234567890123456789",
    "1e400",
    "1.0",
    '{"a":[9007199254740993,{"b":1.50}]}',
  ])("keeps the digits of %s", (text) => {
    expect(writeExact(parseExact(text), 0)).toBe(text);
  });

  test("may be as large as a server sends it", () => {
    const text = JSON.stringify([`\\"${"x".repeat(17_000_000)}`, 1]);
    expect(writeExact(parseExact(text), 0)).toHaveLength(text.length);
  });

  test("has plain numbers where JavaScript holds them exactly", () => {
    expect(parseExact('{"ms":1763414400000,"half":0.5,"none":-3}')).toEqual({
      ms: 1_763_414_400_000,
      half: 0.5,
      none: -3,
    });
    expect(parseExact("9007199254740993")).toEqual(new ExactNumber("9007199254740993"));
  });

  test("takes no digits within texts for numbers, and no text for its own mark", () => {
    const texts = [
      '"12345678901234567890"',
      String.raw`"a \" 12345678901234567890"`,
      String.raw`"\\"`,
      String.raw`["\u000012345678901234567890", 12345678901234567890]`,
      String.raw`["\u0000", "\u0000\u0000", 1.0]`,
    ];
    for (const text of texts) {
      const value = parseExact(text);
      const plain = JSON.parse(text) as unknown;
      expect(JSON.parse(writeExact(value))).toEqual(plain);
    }
    expect(parseExact(texts[3]!)).toEqual([
      "\u000012345678901234567890",
      new ExactNumber("12345678901234567890"),
    ]);
  });

  test("is what JSON.parse gives, for whatever JSON.stringify writes", () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const text = JSON.stringify(value);
        expect(JSON.parse(writeExact(parseExact(text)))).toEqual(JSON.parse(text));
      }),
    );
  });

  test("keeps keys that objects have by themselves", () => {
    const text = '{"__proto__":1.0,"constructor":{"toString":2}}';
    expect(writeExact(parseExact(text), 0)).toBe(text);
  });

  test("throws where the text is no JSON", () => {
    for (const text of ["", "{", "nul", "1.2.3", "[1,]"])
      expect(() => parseExact(text)).toThrow(SyntaxError);
  });
});
