import { describe, expect, test } from "vitest";
import { z } from "zod";
import { check, type Schema } from "./schema.ts";

const age = z.object({ age: z.number().int(), tags: z.array(z.string()).default([]) });

function slowly<Input, Output>(schema: Schema<Input, Output>): Schema<Input, Output> {
  const standard = schema["~standard"];
  return {
    "~standard": { ...standard, validate: async (value) => standard.validate(value) },
  };
}

describe("a schema that answers at once", () => {
  test("gives its output form without a promise", () => {
    expect(check(age, { age: 3 }, "the payload", "invalid_input")).toEqual({ age: 3, tags: [] });
  });

  test("reports what was wrong where", () => {
    expect(() => check(age, { age: "x", tags: [1] }, "the payload", "invalid_input")).toThrow(
      expect.objectContaining({
        code: "invalid_input",
        message: expect.stringMatching(/^the payload doesn't fit its schema: age: .+; tags\.0: .+/),
        details: {
          issues: [expect.stringContaining("age: "), expect.stringContaining("tags.0: ")],
        },
      }),
    );
  });

  test("shows the first five of many issues", () => {
    const many = { tags: Array.from({ length: 20 }, () => 1), age: 1 };
    expect(() => check(age, many, "the payload", "invalid_input")).toThrow("; and 15 more");
  });
});

describe("a schema that answers later", () => {
  test("gives a promise of its output form", async () => {
    const checked = check(slowly(age), { age: 3 }, "the payload", "invalid_input");
    expect(checked).toBeInstanceOf(Promise);
    expect(await checked).toEqual({ age: 3, tags: [] });
  });

  test("rejects with the same error", async () => {
    const checked = check(slowly(age), {}, "the payload", "invalid_output");
    await expect(checked).rejects.toMatchObject({ code: "invalid_output" });
  });
});

test("without a schema anything passes as it is", () => {
  const value = { anything: [1] };
  expect(check(undefined, value, "the payload", "invalid_input")).toBe(value);
});

test("steps of a path may be objects with a key", () => {
  const schema: Schema = {
    "~standard": {
      version: 1,
      vendor: "test",
      validate: () => ({ issues: [{ message: "bad", path: [{ key: "a" }, 0, "b"] }] }),
    },
  };
  expect(() => check(schema, 1, "it", "invalid_input")).toThrow("a.0.b: bad");
});
