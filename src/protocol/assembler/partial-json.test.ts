import { parsePartialJson as theirs } from "ai";
import fc from "fast-check";
import { expect, test } from "vitest";
import { parsePartialJson } from "./partial-json.ts";
import { inputs } from "../contract/random-chunks.ts";
import { jsonBytes, textBytes } from "../limits.ts";

test("every beginning of JSON is read as the AI SDK reads it", async () => {
  for (const input of inputs) {
    for (let length = 0; length <= input.length; length++) {
      const text = input.slice(0, length);
      expect([text, parsePartialJson(text)]).toEqual([text, (await theirs(text)).value]);
    }
  }
});

test("what isn't JSON is read as far as it can be, and never throws", () => {
  expect(parsePartialJson('{"a":1,oops')).toEqual({ a: 1 });
  expect(parsePartialJson("oops")).toBeUndefined();
  fc.assert(fc.property(fc.string(), (text) => void parsePartialJson(text)));
  expect(parsePartialJson("[".repeat(200_000))).toBeInstanceOf(Array);
});

test("sizes are those of JSON, or a little above", () => {
  const bytes = (text: string) => new TextEncoder().encode(text).length;
  fc.assert(
    fc.property(fc.string({ unit: "binary" }), (text) => {
      const written = bytes(JSON.stringify(text)) - 2;
      // A few control characters have short names, and are counted as if they had none.
      expect(textBytes(text)).toBe(written + 4 * (text.match(/[\b\t\n\f\r]/g)?.length ?? 0));
    }),
  );
  fc.assert(
    fc.property(fc.jsonValue({ maxDepth: 2 }), (value) => {
      expect(jsonBytes(value)).toBeGreaterThanOrEqual(bytes(JSON.stringify(value)));
    }),
  );
  expect(textBytes("\ud83dx\0")).toBe(13);
});
