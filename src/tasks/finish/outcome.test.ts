import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { abort, FlotillaError, retryAfter, snooze } from "../../base/errors.ts";
import { seededRandom } from "../../base/random.ts";
import type { Claim, TaskError } from "../rows.ts";
import { type RetryPolicy, decideFinish } from "./outcome.ts";
import type { AttemptOutcome } from "../model.ts";

const claim: Claim = {
  taskId: "t1",
  name: "mail",
  payload: "null",
  token: 7,
  wake: 3,
  failures: 0,
  snoozes: 0,
  maxAttempts: null,
  trace: null,
  deaths: 0,
  claimedAtMs: 5_000,
};
const policy: RetryPolicy = {
  attempts: 3,
  backoff: { baseMs: 1_000, factor: 2, maxMs: 60_000, jitter: 0 },
};
const decide = (
  outcome: AttemptOutcome,
  over: Partial<Claim> = {},
  by: Partial<RetryPolicy> = {},
) => decideFinish({ ...claim, ...over }, outcome, { ...policy, ...by }, seededRandom(1));
const errorOf = (finish: { error: string | null }) => JSON.parse(finish.error!) as TaskError;

const threw: AttemptOutcome = { type: "threw", thrown: new Error("broken") };
const timedOut: AttemptOutcome = { type: "timed_out", timeoutMs: 50 };

describe("how an attempt's ending is stored", () => {
  test.each([
    [
      "a value",
      { type: "returned", result: "5" },
      {},
      { status: "completed", result: "5", counted: 0, wake: null, delayMs: null, event: null },
    ],
    [
      "a value on the last attempt",
      { type: "returned", result: "5" },
      { failures: 2 },
      { status: "completed" },
    ],
    ["a first error", threw, {}, { status: "pending", counted: 1, delayMs: 1_000, wake: 3 }],
    ["a second error", threw, { failures: 1 }, { status: "pending", counted: 1, delayMs: 2_000 }],
    [
      "a last error",
      threw,
      { failures: 2 },
      { status: "failed", counted: 1, delayMs: null, wake: null },
    ],
    ["an error past the last attempt", threw, { failures: 9 }, { status: "failed" }],
    [
      "an error with attempts of its own left",
      threw,
      { failures: 2, maxAttempts: 5 },
      { status: "pending" },
    ],
    ["an error with one attempt of its own", threw, { maxAttempts: 1 }, { status: "failed" }],
    ["a timeout", timedOut, {}, { status: "pending", counted: 1, delayMs: 1_000, wake: 3 }],
    ["a last timeout", timedOut, { failures: 2 }, { status: "failed", counted: 1 }],
    [
      "a cancel",
      { type: "cancelled" },
      {},
      { status: "cancelled", counted: 0, wake: null, error: null },
    ],
    [
      "a shutdown",
      { type: "interrupted" },
      {},
      { status: "pending", counted: 0, delayMs: 0, wake: 3, event: null },
    ],
    [
      "a shutdown on the last attempt",
      { type: "interrupted" },
      { failures: 2 },
      { status: "pending", counted: 0 },
    ],
  ] as [string, AttemptOutcome, Partial<Claim>, object][])("%s", (_, ending, over, expected) => {
    expect(decide(ending, over)).toMatchObject({ taskId: "t1", token: 7, ...expected });
  });

  test("notes failures, retries and cancels with their attempt, and nothing else", () => {
    expect(decide(threw, { failures: 1 }).event).toMatchObject({ type: "retry", attempt: 2 });
    expect(decide(threw, { failures: 2 }).event).toMatchObject({ type: "failed", attempt: 3 });
    expect(decide({ type: "cancelled" }).event).toMatchObject({ type: "cancelled", attempt: 1 });
  });
});

describe("an error that another attempt couldn't mend", () => {
  test.each([
    abort("no use"),
    new FlotillaError("invalid_input", "doesn't fit"),
    new FlotillaError("payload_too_large", "too large"),
    new FlotillaError("payload_too_deep", "too deep"),
    new FlotillaError("payload_not_storable", "odd"),
  ])("fails the task at once: $code", (thrown) => {
    const finish = decide({ type: "threw", thrown });
    expect(finish).toMatchObject({ status: "failed", counted: 1, delayMs: null });
    expect(errorOf(finish)).toMatchObject({ code: thrown.code, message: thrown.message });
  });

  test("is none of ours that may pass", () => {
    for (const code of [
      "store_busy",
      "timeout",
      "invalid_output",
      "cancelled",
      "claim_lost",
    ] as const) {
      expect(decide({ type: "threw", thrown: new FlotillaError(code, "x") }).status).toBe(
        "pending",
      );
    }
  });
});

describe("a wait that the error demands", () => {
  test.each([
    { givenMs: 30_000, waits: 30_000 },
    { givenMs: 10, waits: 1_000 },
    { givenMs: 0, waits: 1_000 },
    { givenMs: 1e12, waits: 7 * 86_400_000 },
    { givenMs: Infinity, waits: 7 * 86_400_000 },
    { givenMs: 1_500.4, waits: 1_500 },
    { givenMs: -5, waits: 1_000 },
    { givenMs: Number.NaN, waits: 1_000 },
  ])("of $givenMs ms becomes $waits: never shorter than the backoff, never without end", (each) => {
    expect(decide({ type: "threw", thrown: retryAfter(each.givenMs, "later") }).delayMs).toBe(
      each.waits,
    );
    // Other libraries' errors may carry the same field.
    const foreign = Object.assign(new Error("429"), { retryAfterMs: each.givenMs });
    expect(decide({ type: "threw", thrown: foreign }).delayMs).toBe(each.waits);
  });

  test("counts for nothing when there is no next attempt", () => {
    const finish = decide({ type: "threw", thrown: retryAfter(30_000, "later") }, { failures: 2 });
    expect(finish).toMatchObject({ status: "failed", delayMs: null });
  });
});

describe("a snooze", () => {
  test.each([
    { givenMs: 60_000, waits: 60_000 },
    { givenMs: 0.2, waits: 1 },
    { givenMs: 0, waits: 0 },
    { givenMs: -5_000, waits: 0 },
    { givenMs: 366 * 86_400_000, waits: 366 * 86_400_000 },
  ])("of $givenMs ms waits $waits, and counts as no attempt, not even as the last", (each) => {
    const finish = decide(
      { type: "threw", thrown: snooze(each.givenMs, "not yet") },
      { failures: 2, snoozes: 4 },
    );
    expect(finish).toMatchObject({
      status: "pending",
      counted: 0,
      snoozed: 1,
      delayMs: each.waits,
      wake: 3,
      error: null,
    });
    expect(finish.event).toMatchObject({ type: "snoozed", attempt: 3 });
    expect(JSON.parse(finish.event!.detail!)).toEqual({
      delayMs: each.waits,
      times: 5,
      message: "not yet",
    });
  });

  test.each([Number.NaN, Infinity, 366 * 86_400_000 + 1, "5" as never])(
    "of %s is refused",
    (asked) => {
      expect(() => snooze(asked)).toThrow(
        expect.objectContaining({
          code: "invalid_option",
          message: expect.stringContaining("snooze"),
        }),
      );
    },
  );

  test("that was made up by other code is an error like any other", () => {
    const thrown = new FlotillaError("snoozed", "for how long?");
    expect(decide({ type: "threw", thrown })).toMatchObject({ status: "pending", counted: 1 });
  });
});

describe("whatever a handler throws", () => {
  const hostile = new Proxy(new Error("x"), {
    get() {
      throw new Error("no");
    },
    has() {
      throw new Error("no");
    },
  });
  test.each([
    ["undefined", undefined],
    ["null", null],
    ["a number", 5],
    ["a symbol", Symbol("s")],
    ["an object without text", Object.create(null)],
    ["an error whose stack isn't text", Object.assign(new Error("x"), { stack: 5 })],
    ["an error whose message isn't text", Object.assign(new Error("x"), { message: { a: 1 } })],
    ["a wait that isn't a number", { retryAfterMs: "soon" }],
    ["an object whose properties throw", hostile],
  ])("is stored as an error and tried again: %s", (_, thrown) => {
    const finish = decide({ type: "threw", thrown });
    expect(finish).toMatchObject({ status: "pending", counted: 1, delayMs: 1_000 });
    const { code, message } = errorOf(finish);
    expect(code).toBe("handler_failed");
    expect(typeof message).toBe("string");
  });

  test("is stored without what databases refuse, and not without bound", () => {
    const thrown = new Error(`\ud83d and \u0000 ${"x".repeat(10_000)}\ud83d`);
    const finish = decide({ type: "threw", thrown });
    expect(finish.error!.isWellFormed()).toBe(true);
    expect(finish.error).not.toMatch(/\\u0000|\\ud83d/);
    expect(finish.error!.length).toBeLessThan(9_000);
    expect(errorOf(finish).message).toContain("\uFFFD and \uFFFD");
  });
});

test("attempts are never more than the limit, whatever the policy", () => {
  const policies = fc.record({
    attempts: fc.integer({ min: 1, max: 20 }),
    own: fc.option(fc.integer({ min: 1, max: 20 })),
  });
  fc.assert(
    fc.property(policies, fc.integer(), ({ attempts, own }, seed) => {
      let failures = 0;
      for (;;) {
        const now = { ...claim, failures, maxAttempts: own };
        const finish = decideFinish(now, threw, { ...policy, attempts }, seededRandom(seed));
        failures += finish.counted;
        if (finish.status === "failed") break;
        expect(finish.delayMs).toBeGreaterThanOrEqual(0);
      }
      expect(failures).toBe(own ?? attempts);
    }),
  );
});
