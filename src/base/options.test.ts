import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { checkNumber, checkOptions, nearest } from "./options.ts";

const known = ["attempts", "timeoutMs", "backoff", "priority", "key"];

describe("an unknown option", () => {
  test.each([
    ["atempts", "attempts"],
    ["attemps", "attempts"],
    ["timeout", "timeoutMs"],
    ["TIMEOUTMS", "timeoutMs"],
    ["priorty", "priority"],
    ["backof", "backoff"],
    ["kye", undefined],
    ["ky", "key"],
    ["zzzzzz", undefined],
  ])("%s suggests %s", (name, meant) => {
    expect(nearest(name, known)).toBe(meant);
  });

  test("is named in the error, with the suggestion for programs too", () => {
    expect(() => checkOptions("enqueue", { priorty: 1 }, known)).toThrow(
      expect.objectContaining({
        code: "invalid_option",
        message: "enqueue: unknown option `priorty`, did you mean `priority`?",
        details: { option: "priorty", suggestion: "priority" },
      }),
    );
  });

  test.each([
    ["retries", ["attempts", "slots"], "attempts"],
    ["maxRetries", ["attempts", "slots"], "attempts"],
    ["delay", ["delayMs", "runAt"], "delayMs"],
    ["startAfter", ["delayMs", "runAt"], "runAt"],
    ["cron", ["pattern", "everyMs"], "pattern"],
    ["every", ["pattern", "everyMs"], "everyMs"],
    ["concurrency", ["slots", "target"], "slots"],
    ["jobId", ["key", "priority"], "key"],
    ["singletonKey", ["key", "priority"], "key"],
  ])("with another queue library's name, %s suggests ours", (name, ours, meant) => {
    expect(() => checkOptions("task", { [name]: 1 }, ours)).toThrow(
      `task: unknown option \`${name}\`, did you mean \`${meant}\`?`,
    );
  });

  test("that belongs elsewhere is named with where it belongs", () => {
    expect(() => checkOptions("task", { cron: "* * * * *" }, known)).toThrow(
      "task: unknown option `cron`: a schedule says when, as in `schedule(",
    );
  });

  test("far from all of them gets the list", () => {
    expect(() => checkOptions("enqueue", { colour: 1 }, known)).toThrow(
      "unknown option `colour`; it takes attempts, timeoutMs, backoff, priority, key",
    );
  });

  test("with one wrong character always suggests the right one", () => {
    const long = known.filter((name) => name.length > 4);
    fc.assert(
      fc.property(fc.constantFrom(...long), fc.nat(), fc.constantFrom("x", ""), (name, at, put) => {
        const place = at % name.length;
        const typo = name.slice(0, place) + put + name.slice(place + 1);
        expect(nearest(typo, known)).toBe(name);
      }),
    );
  });

  test("of hostile length is judged at once", () => {
    expect(nearest("a".repeat(1_000_000), known)).toBeUndefined();
  });

  test("is not one that is known, even without a value", () => {
    expect(() => checkOptions("x", { key: undefined, priority: 1 }, known)).not.toThrow();
  });
});

describe("a number", () => {
  const range = { min: 1, max: 10 };
  test.each([1, 10, 5])("in range is taken: %s", (value) => {
    expect(checkNumber("slots", value, range)).toBe(value);
  });
  test.each([0, 11, 1.5, Number.NaN, Infinity, -1, "5", null, undefined, {}, 5n])(
    "out of range, or no number at all, is refused: %s",
    (value) => {
      expect(() => checkNumber("slots", value, range)).toThrow(
        expect.objectContaining({
          code: "invalid_option",
          message: expect.stringContaining("slots must be a whole number from 1 to 10, not "),
        }),
      );
    },
  );
  test("may be a fraction where that makes sense", () => {
    expect(checkNumber("target", 0.5, { min: 0, max: 1, whole: false })).toBe(0.5);
  });
});
