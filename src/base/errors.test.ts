import { describe, expect, test } from "vitest";
import {
  abort,
  contendedCodes,
  decidedCodes,
  type ErrorCode,
  FlotillaError,
  hasCode,
  messageOf,
  ownerAwayCodes,
  retryAfter,
  storeAwayCodes,
  storeWideCodes,
  transientCodes,
  unstorableCodes,
  untilStoreRecovers,
} from "./errors.ts";

describe("the message of what was thrown", () => {
  const unprintable = {
    toString: () => {
      throw new Error("no");
    },
  };
  const oddMessage = Object.assign(new Error("x"), { message: { not: "text" } });
  test.each([
    ["an error", new Error("broken"), "broken"],
    ["an error without a message", new TypeError(), "TypeError"],
    ["text", "broken", "broken"],
    ["nothing", undefined, "undefined"],
    ["null", null, "null"],
    ["a symbol", Symbol("s"), "Symbol(s)"],
    [
      "an object without text",
      Object.create(null),
      "a value that can't be turned into text was thrown",
    ],
    [
      "an object whose text throws",
      unprintable,
      "a value that can't be turned into text was thrown",
    ],
    ["an error whose message isn't text", oddMessage, "[object Object]"],
  ])("is text, whatever it was: %s", (_, thrown, message) => {
    expect(messageOf(thrown)).toBe(message);
  });

  test("is bounded", () => {
    expect(messageOf("a".repeat(10_000))).toHaveLength(4_001);
    expect(messageOf("abcdef", 3)).toBe("abc…");
  });
});

test("a handler's errors carry what the queue needs of them", () => {
  const cause = new Error("why");
  expect(abort("stop", { cause })).toMatchObject({ code: "aborted", message: "stop", cause });
  expect(retryAfter(5_000, "later")).toMatchObject({ code: "handler_failed", retryAfterMs: 5_000 });
});

test("our codes are distinguished from codes of other errors", () => {
  const error = new FlotillaError("closed", "x");
  expect(hasCode(error, "closed", "timeout")).toBe(true);
  expect(hasCode(error, "timeout")).toBe(false);
  expect(hasCode(Object.assign(new Error("x"), { code: "closed" }), "closed")).toBe(false);
});

describe("the groups of codes that decide whether a call is repeated", () => {
  const holds = (group: readonly ErrorCode[], part: readonly ErrorCode[]) =>
    part.every((code) => group.includes(code));

  test("hold each other: what is transient may recover, and what may recover is store-wide", () => {
    expect(holds(transientCodes, [...storeAwayCodes, ...contendedCodes])).toBe(true);
    expect(holds(untilStoreRecovers, transientCodes)).toBe(true);
    expect(new Set(storeWideCodes)).toEqual(new Set(["closed", ...untilStoreRecovers]));
    expect(holds(ownerAwayCodes, storeAwayCodes)).toBe(true);
    expect(holds(decidedCodes, unstorableCodes)).toBe(true);
  });

  test("repeat nothing that an owner has decided", () => {
    const repeated: readonly ErrorCode[] = [...ownerAwayCodes, ...storeWideCodes];
    expect(decidedCodes.filter((code) => repeated.includes(code))).toEqual([]);
  });
});
