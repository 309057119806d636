import { describe, expect, test } from "vitest";
import { metadataIn, metadataText, parseMetadata } from "./filter.ts";

describe("a filter by metadata", () => {
  test("has paths and values, as many as are wanted", () => {
    expect(parseMetadata('ticket.id:7 plan="two words" metadata.note:100%')).toEqual({
      "metadata.ticket.id": "7",
      "metadata.plan": "two words",
      "metadata.note": "100%",
    });
    expect(parseMetadata("  ")).toEqual({});
  });

  test("is the same text again, whatever it has in it", () => {
    for (const value of ["7", "two words", 'a "b" \\', '"', "100%", "it's", "<b>", "a:b=c"]) {
      const query = { "metadata.a.b": value };
      expect(parseMetadata(metadataText(query))).toEqual(query);
    }
  });

  test("that can't be understood is answered with a sentence that says what to write", () => {
    expect(parseMetadata("ticket")).toContain("such as ticket.id:7");
    expect(parseMetadata("ticket:")).toBe("The metadata ticket needs a value after its colon.");
    expect(parseMetadata('plan:"open')).toContain("is no metadata");
    expect(JSON.stringify(parseMetadata("x".repeat(10_000))).length).toBeLessThan(200);
  });

  test("leaves to the server what the server checks", () => {
    expect(Object.keys(parseMetadata("__proto__:1 a%b:2"))).toEqual([
      "metadata.__proto__",
      "metadata.a%b",
    ]);
  });

  test("is taken from an address with nothing else in it", () => {
    const search = { user: "ada", "metadata.a": "1", "metadata.b": 7, "metadata.c": "" };
    expect(metadataIn(search)).toEqual({ "metadata.a": "1" });
    expect(metadataText({ user: "ada" })).toBe("");
  });
});
