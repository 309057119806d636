import { describe, expect, test } from "vitest";
import { abort, FlotillaError, retryAfter, snooze } from "../../base/errors.ts";
import { cancel, classifyThrown, type Thrown, unrecoverable } from "./thrown.ts";

describe("what a transition throws", () => {
  test.each<[string, unknown, object]>([
    [
      "a plain error",
      new Error("broken"),
      { type: "retry", retryAfterMs: 0, error: { code: "handler_failed", message: "broken" } },
    ],
    ["a text", "broken", { type: "retry", error: { message: "broken" } }],
    ["nothing", undefined, { type: "retry", error: { message: "undefined" } }],
    ["an error that demands time", retryAfter(500, "slow down"), { retryAfterMs: 500 }],
    [
      "one that demands infinite time",
      { retryAfterMs: 1e15 },
      { retryAfterMs: 7 * 24 * 60 * 60_000 },
    ],
    ["one that demands nonsense", { retryAfterMs: "soon" }, { retryAfterMs: 0 }],
    ["an abort", abort("no"), { type: "fail", error: { code: "aborted", message: "no" } }],
    ["an unrecoverable", unrecoverable("disk gone"), { type: "fail", error: { by: "system" } }],
    [
      "an unrecoverable of the user's",
      unrecoverable("no such image", { by: "user" }),
      { type: "fail", error: { code: "aborted", message: "no such image", by: "user" } },
    ],
    ["a cancel", cancel("sold out"), { type: "cancel", reason: "sold out" }],
    ["a snooze", snooze(500, "not yet"), { type: "snooze", delayMs: 500, message: "not yet" }],
    [
      "an input that doesn't fit",
      new FlotillaError("invalid_input", "x"),
      { type: "fail", error: { code: "invalid_input" } },
    ],
    ["a value that is too large", new FlotillaError("payload_too_large", "x"), { type: "fail" }],
    [
      "the cancel of something else that it waited for",
      new FlotillaError("cancelled", "task t1 was cancelled"),
      { type: "retry", error: { code: "cancelled" } },
    ],
    ["an output that doesn't fit", new FlotillaError("invalid_output", "x"), { type: "retry" }],
  ])("%s", (_, thrown, expected) => {
    expect(classifyThrown(thrown)).toMatchObject(expected);
  });

  test("is stored only where databases can hold it", () => {
    const thrown = classifyThrown(new Error("a\u0000b\ud800c")) as Thrown & { type: "retry" };
    expect(thrown.error.message).toBe("a\uFFFDb\uFFFDc");
    expect(thrown.error.stack).not.toContain("\u0000");
  });

  test("may throw when its properties are read", () => {
    const hostile = new Proxy(new Error("x"), {
      get() {
        throw new Error("no");
      },
    });
    expect(classifyThrown(hostile)).toMatchObject({ type: "retry" });
  });
});
