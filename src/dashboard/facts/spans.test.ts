import { expect, test } from "vitest";
import {
  boundedText,
  bytesText,
  counted,
  countText,
  exactText,
  relativeText,
  durationText,
} from "./spans.ts";

test.each([
  [0, "0 ms"],
  [-5, "0 ms"],
  [999, "999 ms"],
  [4_240, "4.2 s"],
  [59_000, "59 s"],
  [200_000, "3 min 20 s"],
  [3_600_000, "1 h"],
  [187_200_000, "2 d 4 h"],
])("a span of %i ms is %s", (ms, text) => {
  expect(durationText(ms)).toBe(text);
});

test.each([
  [1_000, "just now"],
  [-1_000, "just now"],
  [4_000, "4 s ago"],
  [240_000, "4 min ago"],
  [-7_300_000, "in 2 h"],
  [172_800_000, "2 d ago"],
])("what was %i ms ago is %s", (ago, text) => {
  expect(relativeText(1_763_414_400_000 - ago, 1_763_414_400_000)).toBe(text);
});

test("the exact time has the date, the milliseconds and the zone", () => {
  expect(exactText(1_763_414_400_123)).toMatch(
    /^2025-11-1[678] \d\d:\d\d:\d\d\.123 [+-]\d\d:\d\d$/,
  );
  expect(exactText(Number.NaN)).toBe("no time");
});

test("a count says where the store has stopped counting", () => {
  expect([countText(9_999), countText(10_000)]).toEqual(["9,999", "10,000+"]);
  expect([boundedText(1, "task"), boundedText(12_000, "task")]).toEqual([
    "1 task",
    "12,000+ tasks",
  ]);
  expect([counted(1, "task"), counted(12_000, "task"), counted(0, "pod")]).toEqual([
    "1 task",
    "12,000 tasks",
    "0 pods",
  ]);
  expect([bytesText(12), bytesText(1_536), bytesText(3 * 1_024 ** 2)]).toEqual([
    "12 B",
    "1.5 KiB",
    "3.0 MiB",
  ]);
});
