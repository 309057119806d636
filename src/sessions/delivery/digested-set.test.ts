import { describe, expect, test } from "vitest";
import { createDigestedSet } from "./digested-set.ts";

const setOf = (...texts: string[]) => {
  const made = createDigestedSet();
  for (const text of texts) made.add(text);
  return made;
};

describe("the digest of a set", () => {
  test("is the same for the same strings, in whatever order and however often they came", () => {
    const one = setOf("a", "b", "c");
    const other = setOf("c", "x", "a", "a", "b");
    expect(other.delete("x")).toBe(true);
    expect(other.delete("x")).toBe(false);
    expect([...other].toSorted()).toEqual(["a", "b", "c"]);
    expect(other.digest).toBe(one.digest);
    expect(other.size).toBe(3);
  });

  test("is another for other strings, also where there are as many", () => {
    const sets = [[], ["a"], ["b"], ["a", "b"], ["a", "c"], ["ab"], ["", "a"], ["é"], ["e\u0301"]];
    expect(new Set(sets.map((texts) => setOf(...texts).digest)).size).toBe(sets.length);
  });

  test("of a set that has become empty is that of an empty one", () => {
    const left = setOf("a", "b");
    left.delete("a");
    left.delete("b");
    expect(left.digest).toBe(createDigestedSet().digest);
  });
});
