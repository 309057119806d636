import { APICallError, RetryError } from "ai";
import { describe, expect, test } from "vitest";
import { abort, FlotillaError, retryAfter } from "../base/errors.ts";
import { classifyCall, isResponse } from "./classify.ts";

const throttled = { kind: "throttled" };
const fault = { kind: "server_error" };
const ours = { kind: "ignored" };
const nowMs = Date.parse("2026-11-15T12:00:00Z");
const named = (name: string, more: object = {}) => Object.assign(new Error(name), { name }, more);
const coded = (code: string) => Object.assign(new Error(code), { code });
const answer = (status: number, headers: Record<string, string> = {}) =>
  new Response(null, { status, headers });

function apiCallError(statusCode: number, responseHeaders: Record<string, string> = {}) {
  const url = "http://127.0.0.1/v1";
  return new APICallError({
    message: "no",
    url,
    requestBodyValues: {},
    statusCode,
    responseHeaders,
  });
}

describe("how a call ended", () => {
  test.each<[string, unknown, object]>([
    ["200", answer(200), { kind: "success" }],
    ["304", answer(304), { kind: "success" }],
    ["400", answer(400), { kind: "ignored" }],
    ["401", answer(401), { kind: "ignored" }],
    ["404", answer(404), { kind: "ignored" }],
    ["408", answer(408), { kind: "timeout" }],
    ["422", answer(422), { kind: "ignored" }],
    ["429", answer(429), { kind: "throttled" }],
    ["429 with a delay", answer(429, { "retry-after": "2" }), throttledFor(2_000)],
    ["500", answer(500), { kind: "server_error" }],
    ["502", answer(502), { kind: "server_error" }],
    ["503", answer(503), { kind: "server_error" }],
    ["503 with a delay", answer(503, { "retry-after": "9" }), throttledFor(9_000)],
    ["504", answer(504), { kind: "timeout" }],
    ["529", answer(529), { kind: "throttled" }],
  ])("a response with %s", (_, response, expected) => {
    expect(isResponse(response)).toBe(true);
    expect(classifyCall(response, nowMs)).toEqual(expected);
  });

  test.each<[string, unknown, object]>([
    [
      "OpenAI's rate limit",
      named("RateLimitError", { status: 429, headers: new Headers({ "retry-after": "4" }) }),
      throttledFor(4_000),
    ],
    ["OpenAI's timeout", named("APIConnectionTimeoutError"), { kind: "timeout" }],
    ["OpenAI's abort", named("APIUserAbortError"), { kind: "ignored" }],
    [
      "OpenAI's connection error",
      named("APIConnectionError", { cause: coded("ECONNRESET") }),
      fault,
    ],
    [
      "Anthropic overloaded",
      named("APIError", {
        status: 529,
        error: { type: "error", error: { type: "overloaded_error" } },
      }),
      { kind: "throttled" },
    ],
    [
      "Anthropic overloaded in the middle of a stream",
      named("APIError", { error: { type: "error", error: { type: "overloaded_error" } } }),
      { kind: "throttled" },
    ],
    [
      "a limit of calls at once, in words",
      Object.assign(new Error("Number of concurrent connections has exceeded your rate limit"), {
        status: 429,
      }),
      { kind: "throttled", limitedBy: "concurrency" },
    ],
    [
      "a limit of tokens per time, in words",
      Object.assign(new Error("Rate limit reached on tokens per min (TPM)"), { status: 429 }),
      { kind: "throttled", limitedBy: "rate" },
    ],
    [
      "Bedrock's throttling",
      named("ThrottlingException", { $metadata: { httpStatusCode: 429 } }),
      { kind: "throttled" },
    ],
    [
      "AWS throttling that is sent as a mistake of ours",
      named("ThrottlingException", { $metadata: { httpStatusCode: 400 } }),
      { kind: "throttled" },
    ],
    [
      "what the AWS SDK takes for throttling",
      named("SomethingNew", {
        $retryable: { throttling: true },
        $metadata: { httpStatusCode: 400 },
      }),
      { kind: "throttled" },
    ],
    [
      "Bedrock's timeout",
      named("ModelTimeoutException", { $metadata: { httpStatusCode: 408 } }),
      { kind: "timeout" },
    ],
    ["an AWS mistake", named("ValidationException", { $metadata: { httpStatusCode: 400 } }), ours],
    [
      "an AWS fault",
      named("InternalServerException", { $metadata: { httpStatusCode: 500 } }),
      fault,
    ],
    ["Google's quota", Object.assign(new Error(), { status: "RESOURCE_EXHAUSTED" }), throttled],
    ["axios", Object.assign(new Error(), { response: { status: 503, headers: {} } }), fault],
    ["the AI SDK's error", apiCallError(429, { "retry-after": "1" }), throttledFor(1_000)],
    ["the AI SDK's error for a mistake", apiCallError(400), ours],
    [
      "the AI SDK's error after its retries",
      new RetryError({
        message: "gave up",
        reason: "maxRetriesExceeded",
        errors: [apiCallError(500), apiCallError(429)],
      }),
      throttled,
    ],
    ["no connection", new TypeError("fetch failed", { cause: coded("ECONNREFUSED") }), fault],
    ["no such host", coded("ENOTFOUND"), fault],
    ["a connection that took too long", coded("UND_ERR_CONNECT_TIMEOUT"), { kind: "timeout" }],
    ["headers that took too long", coded("UND_ERR_HEADERS_TIMEOUT"), { kind: "timeout" }],
    ["a signal that timed out", new DOMException("late", "TimeoutError"), { kind: "timeout" }],
    ["an abort", new DOMException("stop", "AbortError"), ours],
    ["an error of the caller's own", new TypeError("x is not a function"), ours],
    ["a text", "no", ours],
    ["nothing", undefined, ours],
    ["an abort of the task because of it", abort("no", { cause: apiCallError(429) }), throttled],
    ["a retry because of it", retryAfter(10, "no", { cause: apiCallError(500) }), fault],
    ["a throttle that is full", new FlotillaError("throttle_full", "full"), ours],
  ])("of %s", (_, error, expected) => {
    expect(classifyCall(error, nowMs)).toEqual(expected);
  });

  test("an error whose causes form a circle is read for a while only", () => {
    const error: Error & { cause?: unknown } = new Error("round");
    error.cause = new Error("and round", { cause: error });
    expect(classifyCall(error, nowMs)).toEqual({ kind: "ignored" });
  });

  test("one's own classifier is called first, and the usual one where it returns nothing", () => {
    const own = (thing: unknown) =>
      thing instanceof Error && thing.message === "busy" ? ("throttled" as const) : undefined;
    expect(classifyCall(new Error("busy"), nowMs, own)).toEqual({ kind: "throttled" });
    expect(classifyCall(answer(502), nowMs, own)).toEqual({ kind: "server_error" });
    expect(
      classifyCall(answer(502), nowMs, () => ({ kind: "throttled", retryAfterMs: 5 })),
    ).toEqual(throttledFor(5));
  });
});

function throttledFor(retryAfterMs: number) {
  return { kind: "throttled", retryAfterMs };
}
