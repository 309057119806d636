import { describe, expect, test } from "vitest";
import { markers } from "./kinds.ts";
import { allMutations, misfits } from "./mutants.ts";

describe("a mutation", () => {
  test.each(allMutations)("fits the source: $name", (mutation) => {
    expect(misfits(mutation)).toEqual([]);
    for (const { find, put } of mutation.edits) {
      const lost = markers.filter(
        (each) => asMarked(find).includes(each) && !asMarked(put).includes(each),
      );
      expect(lost).toEqual([]);
    }
  });

  test("has a name of its own", () => {
    const names = allMutations.map(({ name }) => name);
    expect(names.filter((name, at) => names.indexOf(name) !== at)).toEqual([]);
  });
});

/** A template as markers see it. */
function asMarked(text: string): string {
  return text.replaceAll(/\$\{[^}]*\}/g, "?");
}
