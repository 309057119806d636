import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { errorGroupOf, groupVersion, shapeOf, withoutQuotations } from "./fingerprint.ts";

describe("the shape of a message", () => {
  test.each([
    ["no such address", "no such address"],
    ["user 4711 not found", "user N not found"],
    ["took 1.5 s, the limit is -2", "took N s, the limit is N"],
    ["took 1500ms", "took Nms"],
    ["took 1.5s", "took Ns"],
    ["is -1.5e-7, not 2", "is N, not N"],
    ["12:30:05,250 late by 1,234", "N late by N"],
    ["at 2026-11-15T08:27:03.123Z", "at <time>"],
    ["order 019a8f5e-7d2c-7b41-a9c4-0f1e2d3c4b5a is gone", "order <id> is gone"],
    ["request req_8fK2xZ9q failed", "request <id> failed"],
    ["object 0xdeadbeef at 7ffde4a1b2c3", "object <id> at <id>"],
    ["commit 9f86d081 not found", "commit <id> not found"],
    [`can't open "a b.txt"`, "can't open <text>"],
    ["can't open 'a.txt' or 'b.txt'", "can't open <text> or <text>"],
    ["the users' files aren't there", "the users' files aren't there"],
    ["unknown column `price_2`", "unknown column <text>"],
    ["GET https://api.example.com/v1/users/42?key=abc#x: 503", "GET https://api.example.com/…: N"],
    ["see https://example.com.", "see https://example.com."],
    ["postgres://ada:secret@db.internal/app refused", "postgres://db.internal/… refused"],
    ["connect ECONNREFUSED 127.0.0.1:5432", "connect ECONNREFUSED N"],
    ["HTTP 429 Too Many Requests", "HTTP N Too Many Requests"],
    ["invalid utf8 in base64", "invalid utfN in baseN"],
    ["  two\n\tlines  ", "two lines"],
    ["٣ tries left", "N tries left"],
    ["", ""],
  ])("of %j is %j", (message, shape) => {
    expect(shapeOf(message)).toBe(shape);
  });

  const kept = fc.constantFrom("no", "such", "user", "can't", "reach", "ECONNRESET", "für", "失敗");
  const hex = fc.string({ unit: fc.constantFrom(...Array.from("0123456789abcdef")), minLength: 8 });
  const varying: Record<string, fc.Arbitrary<string>> = {
    number: fc.integer().map(String),
    fraction: fc.float({ noNaN: true, noDefaultInfinity: true }).map((each) => each.toFixed(3)),
    id: fc.uuid(),
    address: hex.map((each) => `0x${each}`),
    quoted: fc
      .string({ unit: fc.constantFrom(...Array.from("ab1 -.")) })
      .map((each) => `"${each}"`),
    url: fc
      .string({ unit: fc.constantFrom(...Array.from("abz019/?=&%-_")) })
      .map((path) => `https://example.com/${path}`),
  };
  const kind = fc.constantFrom(...Object.keys(varying));
  const message = (parts: readonly { word: string; kind: string }[], values: readonly string[]) =>
    parts.map(({ word }, at) => `${word} ${values[at]}`).join(" ");

  test("is the same whatever numbers, ids, quotations and URLs stand in a message", () => {
    const filled = fc
      .array(fc.record({ word: kept, kind }), { minLength: 1, maxLength: 6 })
      .chain((parts) => {
        const values = fc.tuple(...parts.map((part) => varying[part.kind]!));
        return fc.tuple(fc.constant(parts), values, values);
      });
    fc.assert(
      fc.property(filled, ([parts, one, other]) => {
        expect(shapeOf(message(parts, one))).toBe(shapeOf(message(parts, other)));
      }),
    );
  });

  test("distinguishes words", () => {
    const words = fc.array(kept, { minLength: 1, maxLength: 6 }).map((each) => each.join(" "));
    fc.assert(
      fc.property(words, words, (one, other) => {
        expect(shapeOf(one) === shapeOf(other)).toBe(one === other);
      }),
    );
  });

  test("can be made of any text, is short, and can be stored", () => {
    const any = fc.oneof(fc.string(), fc.string({ unit: "binary", maxLength: 5_000 }));
    fc.assert(
      fc.property(any, (text) => {
        const shape = shapeOf(text);
        expect(shape.length).toBeLessThanOrEqual(300);
        expect(shape.isWellFormed()).toBe(true);
      }),
    );
  });

  test.each(["'", '"', "`", "a'", "https://", "0", "a0", "((", "N", "-N.", "«"])(
    "takes no longer for many of %j",
    (piece) => {
      expect(shapeOf(piece.repeat(100_000)).length).toBeLessThanOrEqual(300);
    },
  );
});

describe("a group", () => {
  const error = { name: "mail", code: "handler_failed", message: "no such user 7" };
  const groupOf = (other: Partial<typeof error> = {}, secret = "of this store") =>
    errorGroupOf({ ...error, ...other }, secret);

  test("has an id that stays as it is between releases", () => {
    expect(groupOf()).toBe("g2-7fe48495645093a2");
    expect(groupVersion(groupOf())).toBe(2);
  });

  test("holds errors of one name, one code and one shape", () => {
    expect(groupOf({ message: "no such user 8" })).toBe(groupOf());
    for (const other of [{ name: "post" }, { code: "timeout" }, { message: "no such order 7" }]) {
      expect(groupOf(other)).not.toBe(groupOf());
    }
  });

  test("has another id in another store, so that its text can't be guessed by its id", () => {
    expect(groupOf({}, "of another")).not.toBe(groupOf());
  });

  test.each(["", "g1", "g1-", "1-0123456789abcdef", "g1-0123456789abcde", "g-0123456789abcdef"])(
    "is never named by %j",
    (text) => {
      expect(groupVersion(text)).toBe(undefined);
    },
  );
});

test("a quotation is found as the plain expression finds it, however its marks are mixed", () => {
  const plain =
    /"[^"\n]*"|`[^`\n]*`|“[^”\n]*”|«[^»\n]*»|(?<![\p{L}\p{Nd}])'[^'\n]*'(?![\p{L}\p{Nd}])/gu;
  const marks = fc.constantFrom(
    '"',
    "`",
    "“",
    "”",
    "«",
    "»",
    "'",
    "\n",
    "x",
    "𝒳",
    "\ud835",
    " ",
    "-",
  );
  fc.assert(
    fc.property(fc.array(marks, { maxLength: 30 }), (given) => {
      const text = given.join("");
      expect(withoutQuotations(text)).toBe(text.replaceAll(plain, "<text>"));
    }),
    { numRuns: 3_000 },
  );
});
