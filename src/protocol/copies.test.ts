import { describe, expect, test } from "vitest";
import { copyKey, copyKeysOf, originalOf } from "./copies.ts";

describe("a copy of a task", () => {
  test("has a key of its own that tells what it is a copy of", () => {
    const taskId = "01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b7e";
    const key = copyKey(taskId, "0123456789abcdef0123456789abcdef");
    expect(key).toBe(`copy:${taskId}:0123456789abcdef`);
    expect(originalOf(key)).toBe(taskId);
    expect(originalOf(copyKey("a:b", "f".repeat(32)))).toBe("a:b");
    for (const other of [null, "copy:", "copy:x", "order-7", "copy:x:y"])
      expect(originalOf(other)).toBeUndefined();
    expect(copyKey("x".repeat(600), "f".repeat(32)).length).toBeLessThanOrEqual(500);
  });

  test("is found between two keys, which no copy of another task is between", () => {
    const { from, below } = copyKeysOf("a");
    const isBetween = (key: string) => key >= from && key < below;
    expect(isBetween(copyKey("a", "0".repeat(16)))).toBe(true);
    expect(isBetween(copyKey("a", "f".repeat(16)))).toBe(true);
    for (const other of ["", "A", "a0", "ab", "a-", "b"])
      expect([other, isBetween(copyKey(other, "f".repeat(16)))]).toEqual([other, false]);
  });
});
