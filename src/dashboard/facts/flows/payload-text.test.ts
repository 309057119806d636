import { describe, expect, test } from "vitest";
import { typedJson } from "./payload-text.ts";

describe("a payload that a person types", () => {
  test("is JSON, or says what is wrong", () => {
    expect(typedJson('{"by":"ada","ok":true}')).toEqual({ value: { by: "ada", ok: true } });
    expect(typedJson("  ")).toEqual({ value: null });
    expect(typedJson('"yes"')).toEqual({ value: "yes" });
    for (const text of ["yes", "{by: 1}", '{"a":1,}', "1 2", "{"]) {
      expect(typedJson(text).trouble).toContain("no JSON");
    }
  });

  test("with a number that the server would change is refused", () => {
    const { trouble } = typedJson('{"order":[{"id":12345678901234567890}]}');
    expect(trouble).toContain("12345678901234567890");
    expect(trouble).toContain("in quotes");
    expect(typedJson("9007199254740993").trouble).toBeDefined();
    expect(typedJson("0.1234567890123456789").trouble).toBeDefined();
    expect(typedJson("1e400").trouble).toBeDefined();
    expect(typedJson('"12345678901234567890"')).toEqual({ value: "12345678901234567890" });
  });

  test("with a number that is only written otherwise is sent", () => {
    expect(typedJson('{"rate":1.50,"big":1e3,"less":-0.0,"small":1.0e-7}')).toEqual({
      value: { rate: 1.5, big: 1_000, less: -0, small: 1e-7 },
    });
    expect(typedJson("9007199254740992")).toEqual({ value: 9_007_199_254_740_992 });
  });

  test("keeps fields of any name", () => {
    const { value } = typedJson('{"__proto__":{"rate":1.50}}') as { value: object };
    expect(Object.keys(value)).toEqual(["__proto__"]);
    expect(Object.getPrototypeOf(value)).toBe(Object.prototype);
  });
});
