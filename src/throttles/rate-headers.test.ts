import { describe, expect, test } from "vitest";
import { readLimitHeaders, readQuotas } from "./rate-headers.ts";

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
      { limitedBy: "rate" },
    ],
    [
      { "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "120ms" },
      { limitedBy: "rate" },
    ],
    [
      {
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "1m6.5s",
        "x-ratelimit-remaining-requests": "12",
        "x-ratelimit-reset-requests": "20h",
      },
      { limitedBy: "rate" },
    ],
    [
      {
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-11-15T12:00:12Z",
      },
      { limitedBy: "rate" },
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
      { limitedBy: "rate" },
    ],
    [{ "ratelimit-remaining": "0", "ratelimit-reset": "9" }, { limitedBy: "rate" }],
    [{ ratelimit: '"burst";r=3;t=2, "daily";r=0;t=40' }, { limitedBy: "rate" }],
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

describe("the limits that an answer states", () => {
  test.each([
    [
      "OpenAI",
      {
        "x-ratelimit-limit-requests": "5000",
        "x-ratelimit-limit-tokens": "160000",
        "x-ratelimit-remaining-requests": "4999",
        "x-ratelimit-remaining-tokens": "159976",
        "x-ratelimit-reset-requests": "12ms",
        "x-ratelimit-reset-tokens": "9ms",
      },
      [
        { unit: "requests", limit: 5_000, remaining: 4_999, resetMs: 12, refills: "steadily" },
        { unit: "tokens", limit: 160_000, remaining: 159_976, resetMs: 9, refills: "steadily" },
      ],
    ],
    [
      "Groq",
      {
        "x-ratelimit-limit-requests": "14400",
        "x-ratelimit-limit-tokens": "18000",
        "x-ratelimit-remaining-requests": "14370",
        "x-ratelimit-remaining-tokens": "17997",
        "x-ratelimit-reset-requests": "2m59.56s",
        "x-ratelimit-reset-tokens": "7.66s",
      },
      [
        { unit: "requests", limit: 14_400, remaining: 14_370, resetMs: 179_560 },
        { unit: "tokens", limit: 18_000, remaining: 17_997, resetMs: 7_660 },
      ],
    ],
    [
      "Anthropic",
      {
        date: "Thu, 21 Aug 2025 12:41:00 GMT",
        "anthropic-ratelimit-input-tokens-limit": "80000",
        "anthropic-ratelimit-input-tokens-remaining": "80000",
        "anthropic-ratelimit-input-tokens-reset": "2025-08-21T12:40:59Z",
        "anthropic-ratelimit-output-tokens-limit": "16000",
        "anthropic-ratelimit-output-tokens-remaining": "16000",
        "anthropic-ratelimit-output-tokens-reset": "2025-08-21T12:41:00Z",
        "anthropic-ratelimit-requests-limit": "1000",
        "anthropic-ratelimit-requests-remaining": "999",
        "anthropic-ratelimit-requests-reset": "2025-08-21T12:41:03Z",
      },
      [
        { unit: "requests", limit: 1_000, remaining: 999, resetMs: 3_000, windowMs: 60_000 },
        { unit: "tokens", limit: 80_000, remaining: 80_000, resetMs: 0, windowMs: 60_000 },
        { unit: "tokens", limit: 16_000, remaining: 16_000, resetMs: 0, windowMs: 60_000 },
      ],
    ],
    [
      "Mistral",
      {
        "x-ratelimit-limit-req-minute": "60",
        "x-ratelimit-limit-tokens-minute": "50000",
        "x-ratelimit-limit-tokens-month": "4000000",
        "x-ratelimit-remaining-req-minute": "59",
        "x-ratelimit-remaining-tokens-minute": "47196",
        "x-ratelimit-tokens-query-cost": "2804",
      },
      [
        { unit: "requests", limit: 60, remaining: 59, windowMs: 60_000, refills: "at_reset" },
        { unit: "tokens", limit: 50_000, remaining: 47_196, windowMs: 60_000, refills: "at_reset" },
      ],
    ],
    [
      "Azure, without limits",
      { "x-ratelimit-remaining-requests": "19", "x-ratelimit-remaining-tokens": "19913" },
      [
        { unit: "requests", remaining: 19 },
        { unit: "tokens", remaining: 19_913 },
      ],
    ],
    [
      "GitHub",
      {
        "x-ratelimit-limit": "5000",
        "x-ratelimit-remaining": "4987",
        "x-ratelimit-reset": String(nowMs / 1_000 + 1_800),
      },
      [{ unit: "requests", limit: 5_000, remaining: 4_987, resetMs: 1_800_000 }],
    ],
    [
      "GitHub, of one of its resources",
      {
        "x-ratelimit-limit": "30",
        "x-ratelimit-remaining": "29",
        "x-ratelimit-reset": String(nowMs / 1_000 + 60),
        "x-ratelimit-resource": "search",
      },
      [
        {
          name: 'x-ratelimit-remaining "search"',
          oneOf: "x-ratelimit-remaining",
          limit: 30,
          remaining: 29,
        },
      ],
    ],
    [
      "the IETF draft, with two policies",
      {
        "ratelimit-policy": '"burst";q=10;w=10, "daily";q=5000;w=86400',
        ratelimit: '"burst";r=8;t=1, "daily";r=4998;t=69076',
      },
      [
        { name: 'ratelimit "burst"', limit: 10, remaining: 8, resetMs: 1_000, windowMs: 10_000 },
        { name: 'ratelimit "daily"', limit: 5_000, remaining: 4_998, windowMs: 86_400_000 },
      ],
    ],
    [
      "Hugging Face",
      {
        "ratelimit-policy": '"fixed window";"resolvers";q=3000;w=300',
        ratelimit: '"resolvers";r=2999;t=52',
      },
      [{ limit: 3_000, remaining: 2_999, resetMs: 52_000, windowMs: 300_000 }],
    ],
    [
      "the draft before, in one header",
      { "ratelimit-policy": "100;w=60", ratelimit: "limit=100, remaining=50, reset=5" },
      [{ limit: 100, remaining: 50, resetMs: 5_000, windowMs: 60_000 }],
    ],
    [
      "the first drafts, in three headers",
      {
        "ratelimit-limit": "100, 100;w=60",
        "ratelimit-remaining": "50",
        "ratelimit-reset": "30",
        "ratelimit-policy": "100;w=60, 5000;w=3600",
      },
      [{ limit: 100, remaining: 50, resetMs: 30_000, windowMs: 60_000 }],
    ],
    [
      "a policy on bytes",
      {
        "ratelimit-policy": '"bytes";q=65535;w=10;qu="content-bytes"',
        ratelimit: '"bytes";r=5;t=3',
      },
      [],
    ],
  ])("of %s", (_, headers, expected) => {
    const plain = headers as Record<string, string>;
    expect(readQuotas(plain, nowMs)).toMatchObject(expected);
    expect(readQuotas(new Headers(plain), nowMs)).toHaveLength(expected.length);
  });

  test.each([
    ["nothing is allowed at all", { "x-ratelimit-limit-requests": "0" }, "0"],
    ["a limit that no downstream has", { "x-ratelimit-limit-requests": "1000000000000" }, "5"],
    ["more remains than the limit", { "x-ratelimit-limit-requests": "10" }, "11"],
    ["numbers below zero", { "x-ratelimit-limit-requests": "-1" }, "-1"],
    ["no whole numbers", { "x-ratelimit-limit-requests": "1e3" }, "0x10"],
    ["a number of a thousand digits", {}, "9".repeat(1_000)],
    ["not a number", { "x-ratelimit-limit-requests": "many" }, "NaN"],
  ])("that make no sense are left out: %s", (_, headers, remaining) => {
    const all = { ...headers, "x-ratelimit-remaining-requests": remaining };
    expect(readQuotas(all, nowMs)).toEqual([]);
  });

  test("are bounded in number and length", () => {
    const many = Array.from({ length: 100 }, (_, at) => `"p${at}";r=1;t=1`).join(",");
    expect(readQuotas({ ratelimit: many.slice(0, 900) }, nowMs)).toHaveLength(8);
    expect(readQuotas({ ratelimit: many }, nowMs)).toEqual([]);
    expect(readQuotas({ ratelimit: '"a;r=1;t=1' }, nowMs)).toEqual([]);
    expect(readQuotas(undefined, nowMs)).toEqual([]);
  });
});
