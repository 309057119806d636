import { expect, test } from "vitest";
import type { Json } from "../../base/json.ts";
import { applyJsonPatch } from "./json-patch.ts";
import { createAgUiReader } from "./to-chunks.ts";

const maxBytes = 100_000;
const times = <Value>(count: number, value: Value): Value[] =>
  Array.from({ length: count }, () => value);
const copies = (count: number) => times(count, { op: "copy", from: "", path: "/-" });
const tooMuch = { error: expect.stringContaining("copies more than 100000 bytes") as string };

test.each<[string, Json, object[]]>([
  ["copies the whole into itself again and again", [], copies(24)],
  ["compares a large state often", "x".repeat(9_000), times(12, same("", "x".repeat(9_000)))],
  ["adds much", [], times(12, { op: "add", path: "/-", value: "x".repeat(9_000) })],
  ["replaces much", "", times(12, { op: "replace", path: "", value: "x".repeat(9_000) })],
  [
    "moves much",
    { a: "x".repeat(9_000), b: [] },
    times(6, [
      { op: "move", from: "/a", path: "/c" },
      { op: "move", from: "/c", path: "/a" },
    ]).flat(),
  ],
])("a change that %s is refused before it is made", (_, state, patch) => {
  expect(applyJsonPatch(state, patch, { maxBytes })).toEqual(tooMuch);
});

test("a change within its bytes is made, and the value stays as it was", () => {
  const state = { seen: ["a"], of: { at: 1 } };
  const patch = [
    same("/of", { at: 1 }),
    { op: "copy", from: "/of", path: "/seen/-" },
    { op: "move", from: "/of", path: "/was" },
    { op: "replace", path: "/seen/0", value: "b" },
    { op: "remove", path: "/was/at" },
  ];
  const value = { seen: ["b", { at: 1 }], was: {} };
  expect(applyJsonPatch(state, patch, { maxBytes })).toEqual({ value });
  expect(state).toEqual({ seen: ["a"], of: { at: 1 } });
});

test("an agent that has its state doubled is refused, whatever the state nests", () => {
  const reader = createAgUiReader();
  reader.push({ type: "RUN_STARTED" });
  reader.push({ type: "STATE_SNAPSHOT", snapshot: [] });
  const refused = reader.push({ type: "STATE_DELTA", delta: copies(24) });
  expect(refused).toMatchObject({ error: expect.stringContaining("copies more than") as string });
});

test("a state that nests too deeply is cut, and can be changed", () => {
  const reader = createAgUiReader();
  reader.push({ type: "RUN_STARTED" });
  const deep = JSON.parse("[".repeat(50_000) + "]".repeat(50_000)) as Json;
  expect(reader.push({ type: "STATE_SNAPSHOT", snapshot: { deep } })).toHaveLength(1);
  const delta = [{ op: "add", path: "/more", value: deep }];
  expect(reader.push({ type: "STATE_DELTA", delta })).toHaveLength(1);
});

function same(path: string, value: Json) {
  return { op: "test", path, value };
}
