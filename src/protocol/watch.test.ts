import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { applyPatch, type Patch, patchOf, type WatchData } from "./watch.ts";

/** What a reader has of it. */
const sent = <Value>(value: Value) => JSON.parse(JSON.stringify(value)) as Value;

const names = fc.constantFrom("a", "b", "mail", "", "__proto__", "constructor", "set", "in", "0");
const { data } = fc.letrec<{ data: WatchData; value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3 },
    fc.constantFrom(null, true, false, 0, 1, 2.5, "", "x"),
    fc.array(tie("value"), { maxLength: 3 }),
    tie("data"),
  ),
  data: fc
    .array(fc.tuple(names, tie("value")), { maxLength: 5 })
    .map((fields) => Object.fromEntries(fields)),
}));

describe("a patch", () => {
  test("applied to a snapshot gives the next one, whatever both are", () => {
    fc.assert(
      fc.property(data, data, (first, second) => {
        const [before, after] = [sent(first), sent(second)];
        const patch = patchOf(before, after);
        const applied = patch === undefined ? before : applyPatch(before, sent(patch));
        expect(applied).toEqual(after);
        expect(Object.keys(applied).toSorted()).toEqual(Object.keys(after).toSorted());
        // A name such as `__proto__` is a name like any other.
        expect(Object.getPrototypeOf(applied)).toBe(Object.prototype);
      }),
    );
  });

  test("is there only where something has changed", () => {
    fc.assert(
      fc.property(data, (each) => {
        expect(patchOf(sent(each), sent(each))).toBeUndefined();
      }),
    );
  });

  test("names the rows that have changed, and leaves the others as they were", () => {
    const before = {
      names: { mail: { ready: 3, failed: 0 }, scan: { ready: 0 }, old: { ready: 1 } },
      pods: { up: 2 },
      list: [1, 2],
    };
    const after = {
      names: { mail: { ready: 4, failed: 0 }, scan: { ready: 0 }, fresh: { ready: 9 } },
      pods: { up: 2 },
      list: [1, 3],
    };
    const patch = patchOf(before, after);
    expect(patch).toEqual({
      set: { list: [1, 3] },
      in: {
        names: {
          set: { fresh: { ready: 9 } },
          drop: ["old"],
          in: { mail: { set: { ready: 4 } } },
        },
      },
    });
    const applied = applyPatch<WatchData>(before, patch!);
    expect(applied).toEqual(after);
    expect(applied["pods"]).toBe(before.pods);
    expect((applied["names"] as WatchData)["scan"]).toBe(before.names.scan);
  });

  test("replaces an object by what isn't one, and the other way round", () => {
    for (const [one, other] of [
      [{ a: { b: 1 } }, { a: null }],
      [{ a: [1] }, { a: { 0: 1 } }],
      [{ a: "x" }, { a: {} }],
    ] as [WatchData, WatchData][]) {
      expect(applyPatch(one, patchOf(one, other)!)).toEqual(other);
      expect(applyPatch(other, patchOf(other, one)!)).toEqual(one);
    }
  });
});

describe("docs/protocol.md", () => {
  test("shows a patch with what it makes of a snapshot", () => {
    const page = readFileSync(new URL("../../docs/protocol.md", import.meta.url), "utf8");
    const part = page.split(/^## /m).find((each) => each.startsWith("Watching the fleet"))!;
    const shown = [...part.matchAll(/```json\n([\s\S]*?)```/g)].map(
      ([, text]) => JSON.parse(text!) as { type: string; data?: WatchData; patch?: Patch },
    );
    expect(shown.map(({ type }) => type)).toEqual(["snapshot", "patch", "trouble"]);
    const before = shown[0]!.data!;
    const patch = shown[1]!.patch!;
    expect(patchOf(before, applyPatch(before, patch))).toEqual(patch);
  });
});
