import { describe, expect, test } from "vitest";
import { allMutations, misfits } from "./mutants.ts";
import { suiteMutations } from "./suites.ts";

const every = [...allMutations, ...suiteMutations];

describe("a mutation", () => {
  test.each(every)("fits the source: $name", (mutation) => {
    expect(misfits(mutation)).toEqual([]);
  });

  test("has a name of its own", () => {
    const names = every.map(({ name }) => name);
    expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
  });
});
