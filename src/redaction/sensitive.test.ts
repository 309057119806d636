import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Schema } from "../base/schema.ts";
import { sensitive, sensitivePaths } from "./sensitive.ts";

/** A schema of a library that isn't known here. */
const opaque = (): Schema => ({
  "~standard": { version: 1, vendor: "other", validate: (value) => ({ value }) },
});

describe("sensitive", () => {
  test("gives the same schema back, which checks as before", () => {
    const schema = z.string().min(3);
    expect(sensitive(schema)).toBe(schema);
    const outer = z.object({ card: sensitive(z.string().min(3)) });
    expect(outer.parse({ card: "4111" })).toEqual({ card: "4111" });
    expect(() => outer.parse({ card: "4" })).toThrow(/Too small/);
  });

  test("is found in what zod's schemas are made of", () => {
    const secret = () => sensitive(z.string());
    type Node = { note: string; next?: Node | undefined };
    const node: z.ZodType<Node> = z.lazy(() =>
      z.object({ note: sensitive(z.string()), next: node.optional() }),
    );
    const schema = z.object({
      plain: z.string(),
      card: secret().optional(),
      nested: z.object({ pin: secret().nullable().default(null) }).readonly(),
      list: z.array(z.object({ ssn: secret() })),
      byName: z.record(z.string(), z.object({ value: secret() })),
      either: z.union([z.object({ a: secret() }), z.object({ b: z.int() })]),
      changed: z.object({ c: secret() }).transform((value) => value.c.length),
      whole: sensitive(z.object({ d: z.string() })),
      pair: z.tuple([z.int(), secret()]),
      tree: node,
    });
    expect(sensitivePaths(schema).map((path) => path.join("."))).toEqual([
      "card",
      "nested.pin",
      "list.ssn",
      "byName.*.value",
      "either.a",
      "changed.c",
      "whole",
      "pair",
      "tree.note",
      "tree.**.note",
    ]);
    expect(sensitivePaths(sensitive(z.string()))).toEqual([[]]);
    expect(sensitivePaths(undefined)).toEqual([]);
  });

  test("is found in what valibot's schemas are made of", () => {
    const string = { ...opaque(), type: "string" };
    const wrapped = { ...opaque(), type: "optional", wrapped: sensitive({ ...string }) };
    const schema = {
      ...opaque(),
      type: "object",
      entries: {
        card: wrapped,
        list: { ...opaque(), type: "array", item: wrapped },
        plain: string,
      },
    };
    expect(sensitivePaths(schema)).toEqual([["card"], ["list"]]);
  });

  test("takes paths for schemas that nothing is known of, and refuses what is none", () => {
    const schema = sensitive(opaque(), "card.number", "ssn");
    expect(sensitivePaths(schema)).toEqual([["card", "number"], ["ssn"]]);
    expect(() => sensitive(opaque(), "a..b")).toThrow(/isn't a path/);
    expect(() => sensitive({} as Schema)).toThrow(/must be a Standard Schema/);
  });
});
