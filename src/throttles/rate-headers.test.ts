import { describe, expect, test } from "vitest";
import { readLimitHeaders } from "./rate-headers.ts";

const nowMs = Date.parse("2026-11-15T12:00:00Z");
const date = "Sun, 15 Nov 2026 12:00:00 GMT";

describe("the rate headers of a refusal", () => {
  test.each([
    [{ "retry-after": "7" }, { retryAfterMs: 7_000 }],
    [{ "retry-after": "0.25" }, { retryAfterMs: 250 }],
    [{ "retry-after": "Sun, 15 Nov 2026 12:00:30 GMT" }, { retryAfterMs: 30_000 }],
    [{ "retry-after": "Sun, 15 Nov 2026 11:59:30 GMT" }, { retryAfterMs: 0 }],
    [{ "retry-after-ms": "120", "retry-after": "1" }, { retryAfterMs: 120 }],
    [{ "retry-after": "soon" }, {}],
    [{}, {}],
    [
      { "x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "6m0s" },
      { retryAfterMs: 360_000, limitedBy: "rate" },
    ],
    [
      { "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms" },
      { retryAfterMs: 120, limitedBy: "rate" },
    ],
    [
      {
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m6.5s",
        "x-ratelimit-remaining-requests": "12",
        "x-ratelimit-reset-requests": "20h",
      },
      { retryAfterMs: 66_500, limitedBy: "rate" },
    ],
    [
      {
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-15T12:00:12Z",
      },
      { retryAfterMs: 12_000, limitedBy: "rate" },
    ],
    [
      {
        "retry-after": "3",
        "anthropic-ratelimit-requests-remaining": "0",
        "anthropic-ratelimit-requests-reset": "2026-11-15T12:00:12Z",
      },
      { retryAfterMs: 3_000, limitedBy: "rate" },
    ],
    [
      { "x-ratelimit-remaining": "0", "x-ratelimit-reset": String(nowMs / 1_000 + 45) },
      { retryAfterMs: 45_000, limitedBy: "rate" },
    ],
    [
      { "ratelimit-remaining": "0", "ratelimit-reset": "9" },
      { retryAfterMs: 9_000, limitedBy: "rate" },
    ],
    [
      { ratelimit: '"burst";r=3;t=2, "daily";r=0;t=40' },
      { retryAfterMs: 40_000, limitedBy: "rate" },
    ],
    [{ ratelimit: '"burst";r=10;t=2' }, {}],
    [{ "x-ratelimit-remaining-requests": "5", "x-ratelimit-reset-requests": "6m0s" }, {}],
  ])("%o means %o", (headers, expected) => {
    expect(readLimitHeaders(headers, nowMs)).toEqual(expected);
    expect(readLimitHeaders(new Headers(headers), nowMs)).toEqual(expected);
  });

  test("dates are the server's, and so is the time they are compared with", () => {
    const headers = { date, "retry-after": "Sun, 15 Nov 2026 12:00:05 GMT" };
    expect(readLimitHeaders(headers, nowMs + 3_600_000)).toEqual({ retryAfterMs: 5_000 });
  });

  test("plain objects may be written in any case, and hold lists", () => {
    expect(readLimitHeaders({ "Retry-After": ["2"] }, nowMs)).toEqual({ retryAfterMs: 2_000 });
    expect(readLimitHeaders(undefined, nowMs)).toEqual({});
  });
});
