import { describe, expect, test } from "vitest";
import type { RunEventFacts } from "../../asks/flows.ts";
import { notRead, notSet, stateChangesOf } from "./state-changes.ts";

const complete = (seq: number, transition: string, set: unknown): RunEventFacts => ({
  seq,
  atMs: seq,
  type: "complete",
  attempt: 1,
  podId: "pod-1",
  transition,
  startedAtMs: seq,
  detail: { set, next: "x" },
});

describe("the state of a run", () => {
  const history = [
    complete(1, "reserve", { item: "book", price: 1 }),
    { ...complete(2, "pay", { price: 5 }), type: "error" },
    complete(3, "nothing", null),
    complete(4, "pay", { price: 2 }),
  ];

  test("is known before and after each transition that added to it", () => {
    expect(stateChangesOf(history, true)).toEqual([
      {
        seq: 1,
        atMs: 1,
        transition: "reserve",
        fields: [
          { name: "item", before: notSet, after: "book" },
          { name: "price", before: notSet, after: 1 },
        ],
      },
      { seq: 4, atMs: 4, transition: "pay", fields: [{ name: "price", before: 1, after: 2 }] },
    ]);
  });

  test("before the first event that was read isn't known", () => {
    const [change] = stateChangesOf(history.slice(3), false);
    expect(change!.fields).toEqual([{ name: "price", before: notRead, after: 2 }]);
  });

  test("is a shape for callers that may not see it, and takes fields of any name", () => {
    expect(stateChangesOf([complete(1, "pay", "object, 2 keys")], true)).toEqual([
      { seq: 1, atMs: 1, transition: "pay", fields: [], shape: "object, 2 keys" },
    ]);
    const set = JSON.parse('{"__proto__":1,"constructor":2}') as object;
    const [change] = stateChangesOf([complete(1, "pay", set)], true);
    expect(change!.fields).toEqual([
      { name: "__proto__", before: notSet, after: 1 },
      { name: "constructor", before: notSet, after: 2 },
    ]);
  });
});
