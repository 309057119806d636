import { describe, expect, test } from "vitest";
import {
  contextKey,
  innerPrefix,
  innerRanges,
  inputHash,
  keyedSegment,
  ordinalSegment,
  roundPrefix,
} from "./key.ts";

const within = (key: string, path: string) =>
  innerRanges(path).some(([from, before]) => key >= from && key < before);

describe("the key of a step", () => {
  test("is its name, with a number from the second on", () => {
    expect([1, 2, 10].map((ordinal) => ordinalSegment("model", ordinal))).toEqual([
      "model",
      "model#2",
      "model#10",
    ]);
  });

  test("differs for every key, because what ends a key is doubled within it", () => {
    const keys = ["a", "a]", "a]]", "]a", "a/b", "a]/b", "[a]", "a]]/b"];
    const paths = keys.map((key) => innerPrefix(keyedSegment("read", key)));
    expect(new Set(paths).size).toBe(keys.length);
    // No step is taken for one within another.
    const isWithin = paths.filter((path) =>
      keys.some((key) => within(path.slice(0, -1), keyedSegment("read", key))),
    );
    expect(isWithin).toEqual([]);
  });

  test("is short enough for an index, and differs where long keys differ", () => {
    const long = "ö".repeat(999);
    const [one, other] = [keyedSegment("read", `${long}a`), keyedSegment("read", `${long}b`)];
    expect(Buffer.byteLength(one)).toBeLessThan(250);
    expect(one).not.toBe(other);
    expect(keyedSegment("read", `${long}a`)).toBe(one);
    expect(ordinalSegment("ö".repeat(200), 1)).not.toBe(ordinalSegment("ö".repeat(200), 2));
  });

  test("is within its step or round, and within no other", () => {
    const inner = [`${innerPrefix("write")}model`, `${roundPrefix("write", 3)}model`];
    expect(inner).toEqual(["write/model", "write@3/model"]);
    expect(inner.every((key) => within(key, "write"))).toBe(true);
    const others = ["write", "write#2", "write#2/model", "write[a]", "writer/model", "writ/e"];
    expect(others.filter((key) => within(key, "write"))).toEqual([]);
  });
});

test("the key for downstreams is printable and at most 255 characters", () => {
  const task = "0f000000-0000-7000-8000-000000000001";
  expect(contextKey(task, "read[a]")).toBe(`${task}/read[a]`);
  for (const path of ["x".repeat(300), "read[ö]"]) {
    expect(contextKey(task, path)).toMatch(/^[\x20-\x7e]{1,255}$/);
  }
  expect(contextKey(task, "read[ö]")).not.toBe(contextKey(task, "read[ä]"));
});

test("the hash of an input doesn't depend on the order of its fields", () => {
  const hash = inputHash({ a: 1, b: [{ c: 2, d: 3 }] });
  expect(inputHash({ b: [{ d: 3, c: 2 }], a: 1 })).toBe(hash);
  expect(inputHash({ a: 1, b: [{ c: 2, d: 4 }] })).not.toBe(hash);
  expect(inputHash({ a: 1, b: [{ c: 2 }, { d: 3 }] })).not.toBe(hash);
});
