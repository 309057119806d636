import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { FlotillaError } from "./errors.ts";
import { encodeJson, inexactInteger } from "./json.ts";

function refusal(value: unknown, limits?: Parameters<typeof encodeJson>[2]): string {
  try {
    encodeJson("the payload", value, limits);
  } catch (error) {
    if (error instanceof FlotillaError) return error.code;
    throw error;
  }
  return "taken";
}

function nested(depth: number, kind: "array" | "object"): unknown {
  let value: unknown = 0;
  for (let level = 0; level < depth; level++) value = kind === "array" ? [value] : { a: value };
  return value;
}

describe("text that databases refuse", () => {
  test.each([
    ["U+0000", "a\u0000b"],
    ["U+0000 in a key", { "a\u0000": 1 }],
    ["U+0000 after an escaped backslash", "\\\u0000"],
    ["a high surrogate alone", "\ud83d"],
    ["a low surrogate alone", "x\ude00y"],
    ["a pair in the wrong order", "\ude00\ud83d"],
    ["a lone surrogate in a key, deep down", { a: [{ "\ud800": 1 }] }],
    ["a lone surrogate among real pairs", "😀\ud83d😀"],
  ])("is refused: %s", (_, value) => {
    expect(refusal(value)).toBe("payload_not_storable");
  });

  test.each([
    ["a literal backslash-u", "\\u0000"],
    ["a literal backslash-u of a surrogate", "\\ud83d"],
    ["two backslashes and a u", "\\\\u0000"],
    ["three backslashes and a u", "\\\\\\u0000"],
    ["other control characters", "\u0001\u001f\n\t"],
    ["real pairs", "😀 👩‍👩‍👧"],
    ["the text u0000", "u0000"],
  ])("is distinguished from what only resembles it: %s", (_, value) => {
    expect(JSON.parse(encodeJson("the payload", value))).toBe(value);
  });

  test("is refused exactly when it isn't well formed or holds U+0000", () => {
    const units = fc.constantFrom(
      "\\",
      "u",
      "0",
      "0000",
      "d83d",
      "\u0000",
      "\ud83d",
      "\ude00",
      "a",
    );
    fc.assert(
      fc.property(fc.array(units, { maxLength: 12 }), (parts) => {
        const text = parts.join("");
        const storable = text.isWellFormed() && !text.includes("\u0000");
        expect(refusal(text)).toBe(storable ? "taken" : "payload_not_storable");
      }),
      { numRuns: 2_000 },
    );
  });
});

describe("the size limit", () => {
  test("is counted in bytes of UTF-8, not in characters", () => {
    // Two quotes and four bytes each.
    expect(refusal("😀".repeat(10), { maxBytes: 42 })).toBe("taken");
    expect(refusal("😀".repeat(10), { maxBytes: 41 })).toBe("payload_too_large");
    expect(refusal("é".repeat(10), { maxBytes: 22 })).toBe("taken");
    expect(refusal("é".repeat(10), { maxBytes: 21 })).toBe("payload_too_large");
  });

  test("is 256 KiB by default, to the byte", () => {
    expect(refusal("a".repeat(256 * 1024 - 2))).toBe("taken");
    expect(refusal("a".repeat(256 * 1024 - 1))).toBe("payload_too_large");
    expect(refusal("漢".repeat(87_380) + "aa")).toBe("taken");
    expect(refusal("漢".repeat(87_380) + "aaa")).toBe("payload_too_large");
  });

  test("agrees with a count of the bytes for any text", () => {
    fc.assert(
      fc.property(fc.string({ unit: "grapheme" }), fc.integer({ min: 1, max: 60 }), (text, max) => {
        const bytes = Buffer.byteLength(JSON.stringify(text));
        fc.pre(!text.includes("\u0000") && text.isWellFormed());
        expect(refusal(text, { maxBytes: max })).toBe(bytes <= max ? "taken" : "payload_too_large");
      }),
    );
  });

  test("names both numbers in its error", () => {
    expect(() => encodeJson("the payload", "abc", { maxBytes: 4 })).toThrow(
      expect.objectContaining({ details: { bytes: 5, maxBytes: 4 } }),
    );
  });
});

describe("the depth limit", () => {
  test.each(["array", "object"] as const)("is 64 levels by default: %s", (kind) => {
    expect(refusal(nested(64, kind))).toBe("taken");
    expect(refusal(nested(65, kind))).toBe("payload_too_deep");
  });

  test("doesn't count brackets in text, nor what lies side by side", () => {
    expect(refusal("[{".repeat(500))).toBe("taken");
    expect(refusal(['"[', '\\"{', "\\"].map((text) => text.repeat(100)))).toBe("taken");
    expect(refusal(Array.from({ length: 500 }, () => [{}]))).toBe("taken");
  });

  test("is what a value too deep for the engine itself runs into", () => {
    expect(refusal(nested(200_000, "array"))).toBe("payload_too_deep");
  });
});

describe("what isn't JSON", () => {
  test("is refused: a BigInt, a cycle, a value whose toJSON throws", () => {
    const cycle: Record<string, unknown> = {};
    cycle["self"] = cycle;
    expect(refusal(1n)).toBe("payload_not_storable");
    expect(refusal({ deep: [1n] })).toBe("payload_not_storable");
    expect(refusal(cycle)).toBe("payload_not_storable");
    expect(
      refusal({
        toJSON: () => {
          throw new Error("no");
        },
      }),
    ).toBe("payload_not_storable");
  });

  test("becomes null where JSON can't express it", () => {
    expect(encodeJson("x", undefined)).toBe("null");
    expect(encodeJson("x", Symbol("s"))).toBe("null");
    expect(encodeJson("x", [undefined, Number.NaN])).toBe("[null,null]");
    expect(encodeJson("x", { a: undefined })).toBe("{}");
  });

  test("is anything else: all JSON comes back as it was", () => {
    fc.assert(
      fc.property(fc.jsonValue({ maxDepth: 5 }), (value) => {
        const text = JSON.stringify(value);
        fc.pre(!text.includes("\\u"));
        expect(encodeJson("x", value)).toBe(text);
      }),
    );
  });
});

describe("what JSON would lose silently", () => {
  test.each([
    ["a Map", new Map([["a", 1]]), "the result is a Map"],
    ["a Set", { tags: new Set(["a"]) }, "the result has a Set at tags"],
    ["a function", () => 1, "the result is a function"],
    ["a function in it", { a: [{ b: () => 1 }] }, "the result has a function at a.0.b"],
    ["a promise in it", [Promise.resolve(1)], "the result has a promise at 0"],
  ])("is refused with a sentence: %s", (_, value, message) => {
    expect(() => encodeJson("the result", value)).toThrow(
      expect.objectContaining({
        code: "payload_not_storable",
        message: expect.stringContaining(message),
      }),
    );
  });

  test("is accepted where the value has its own toJSON", () => {
    const list = Object.assign(new Map([["a", 1]]), { toJSON: () => ["a"] });
    expect(encodeJson("the result", { list, at: new Date(0), none: undefined })).toBe(
      `{"list":["a"],"at":"1970-01-01T00:00:00.000Z"}`,
    );
  });

  test("is searched without following circles, of which many ways lead around", () => {
    const team: Record<string, unknown> = {};
    team["members"] = ["ada", "bob", "cid", "dan"].map((name) => ({ name, team }));
    expect(() => encodeJson("the result", team)).toThrow(/circular/);
  });
});

describe("an integer in JSON", () => {
  test("that numbers can't hold is found, wherever it is", () => {
    for (const [json, lost] of [
      ["9007199254740993", "9007199254740993"],
      ['{"a":[1,-9007199254740993]}', "-9007199254740993"],
      ['["1234567890123456", 12345678901234567891]', "12345678901234567891"],
      [`{"\\"":${"9".repeat(400)}}`, "9".repeat(400)],
    ] as const)
      expect(inexactInteger(json)).toBe(lost);
  });

  test("that numbers hold is none, nor are digits in text and fractions", () => {
    for (const json of [
      "9007199254740991",
      "9007199254740992",
      "1152921504606846976",
      '"9007199254740993"',
      '{"9007199254740993":1}',
      '"\\"9007199254740993"',
      "0.12345678901234567890",
      "12345678901234567891e3",
      "not json 90071992547409",
    ])
      expect([json, inexactInteger(json)]).toEqual([json, undefined]);
  });
});
