import { describe, expect, test } from "vitest";
import { checkPayload, copyKey, originalOf } from "./copy.ts";

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

  test("has a payload that is JSON, of which no digit is lost", () => {
    for (const fine of ["null", "{}", '{"id":9007199254740991}', '"9007199254740993"', "1.5e300"])
      expect(checkPayload(fine)).toBeUndefined();
    expect(checkPayload("  ")).toContain("null is one");
    expect(checkPayload("{")).toContain("This isn't JSON:");
    expect(checkPayload('{"id":9007199254740993}')).toContain("9007199254740993 has more digits");
  });
});
