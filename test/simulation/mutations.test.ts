import { describe, expect, test } from "vitest";
import { allMutations, misfits } from "./mutants.ts";

describe("a mutation", () => {
  test.each(allMutations)("fits the source: $name", (mutation) => {
    expect(misfits(mutation)).toEqual([]);
  });

  test("has a name of its own", () => {
    const names = allMutations.map(({ name }) => name);
    expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
  });
});
