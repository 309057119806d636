import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { encodeJson } from "../base/json.ts";
import type { Chunk } from "./chunk.ts";
import { createRepair, cutMark, storable } from "./limits.ts";
import { estimateMessageTokens, fileTokens } from "./message.ts";

describe("a chunk of an agent", () => {
  test("can be stored once it is repaired, whatever it was, and is left alone where it could be", () => {
    const anything = fc.jsonValue({ stringUnit: "binary", maxDepth: 3 });
    fc.assert(
      fc.property(anything, (value) => {
        const text = encodeJson("repaired", storable(value));
        expect(storable(JSON.parse(text))).toEqual(JSON.parse(text));
      }),
    );
    const fine = { list: [1, { text: "ok 😀" }] };
    expect(storable(fine)).toBe(fine);
  });

  test("loses U+0000 and halves of pairs visibly, in names too", () => {
    expect(storable({ "a\0": ["\ud83d", "x\0y", "😀"] })).toEqual({
      "a\ufffd": ["\ufffd", "x\ufffdy", "😀"],
    });
  });

  test("is cut where it nests too deeply", () => {
    let deep: unknown = "bottom";
    for (let level = 0; level < 100_000; level++) deep = [deep];
    const text = encodeJson("repaired", storable(deep));
    expect(text).toBe("[".repeat(64) + JSON.stringify(cutMark) + "]".repeat(64));
    expect(storable({ a: { b: {} } }, 2)).toEqual({ a: { b: cutMark } });
  });

  test("changes nothing else by a field called __proto__", () => {
    const repaired = storable(JSON.parse('{"__proto__":{"polluted":"\\u0000"}}') as object);
    expect(Object.keys(repaired)).toEqual(["__proto__"]);
    expect(({} as { polluted?: unknown }).polluted).toBeUndefined();
    expect((repaired as { polluted?: unknown }).polluted).toBeUndefined();
  });

  test("keeps a character whose halves come in two deltas", () => {
    const repair = createRepair();
    const delta = (id: string, text: string): Chunk => ({ type: "text-delta", id, delta: text });
    const said = [
      delta("1", "a\ud83d"),
      delta("2", "\ud83d"),
      delta("1", "\ude00b"),
      delta("2", "c\0"),
    ];
    expect(said.map((chunk) => repair(chunk)["delta"])).toEqual(["a", "", "😀b", "\ufffdc\ufffd"]);
    const fine = delta("1", "fine");
    expect(repair(fine)).toBe(fine);
  });
});

describe("an estimate of tokens", () => {
  test("counts what models are given", () => {
    expect(estimateMessageTokens([{ type: "text", text: "x".repeat(400) }])).toBe(100);
    const data = `data:image/png;base64,${"x".repeat(100_000)}`;
    expect(estimateMessageTokens([{ type: "file", mediaType: "image/png", url: data }])).toBe(
      fileTokens,
    );
    expect(estimateMessageTokens([{ type: "data-chart", data: "x".repeat(400) }])).toBe(0);
    const call = { type: "tool-search", input: { q: "x".repeat(40) }, output: ["y".repeat(400)] };
    const tokens = estimateMessageTokens([call]);
    expect(tokens).toBeGreaterThan(110);
    expect(tokens).toBeLessThan(130);
    expect(
      estimateMessageTokens([
        { type: "steering-message", parts: [{ type: "text", text: "x".repeat(40) }] },
      ]),
    ).toBe(10);
  });
});
