import { describe, expect, test } from "vitest";
import { checkPayload, typedPayload } from "./payload.ts";

describe("a payload that a person types", () => {
  test("is JSON, of which no digit is lost", () => {
    for (const fine of ["null", "{}", '{"id":9007199254740991}', '"9007199254740993"', "1.5e300"])
      expect(checkPayload(fine)).toBeUndefined();
    expect(checkPayload("  ")).toContain("null is one");
    expect(checkPayload('{"id":9007199254740993}')).toContain("9007199254740993 has more digits");
  });

  test.each(["{", "nope", "{'a': 1}", '{"a": 01}', "[1,]", "undefined", "1 2"])(
    "that isn't JSON is refused with a sentence: %s",
    (text) => {
      expect(checkPayload(text)).toContain("This isn't JSON:");
      expect(typedPayload(text)).toEqual({ trouble: checkPayload(text) });
    },
  );

  test("of a signal is null where nothing is typed, and else as it is written", () => {
    expect(typedPayload("  ")).toEqual({ json: "null" });
    expect(typedPayload(' {"ok": true, "rate": 1.50} ')).toEqual({
      json: '{"ok": true, "rate": 1.50}',
    });
  });
});
