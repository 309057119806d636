import { describe, expect, test } from "vitest";
import { type Quota, readQuotas } from "../rate-headers.ts";
import { createQuotas, windowOf } from "./quotas.ts";

const minute: Quota = {
  name: "requests",
  unit: "requests",
  limit: 600,
  remaining: 600,
  resetMs: 30_000,
  windowMs: 60_000,
  refills: "at_reset",
};
const steady: Quota = { ...minute, refills: "steadily", resetMs: 60_000 };

function follow(quota: Quota, { part = 1, countsTokens = false } = {}) {
  const quotas = createQuotas({ countsTokens, estimate: 100 });
  quotas.share(part);
  let number = 0;
  const answer = (changes: Partial<Quota>, nowMs: number, begunSince = 0) =>
    quotas.read(
      [{ ...quota, ...changes }],
      { number: ++number, beganMs: nowMs, begunSince },
      nowMs,
    );
  /** How many calls begin at once. */
  const begin = (nowMs: number, most = 10_000): number => {
    let begun = 0;
    while (begun < most && quotas.waitMs(100, nowMs) === 0) {
      quotas.take(100, nowMs);
      begun++;
    }
    return begun;
  };
  return { quotas, answer, begin };
}

let calls = 0;

function ends(
  quotas: ReturnType<typeof createQuotas>,
  call: { tried: readonly string[]; sawNothingLeft: boolean },
  kind: "success" | "throttled",
  nowMs: number,
): boolean {
  const number = ++calls;
  return quotas.ended({ number, ...call }, { kind, comesBack: true, begun: number }, nowMs);
}

describe("the time that a limit is for", () => {
  test.each<[string, Partial<Quota>, number | undefined]>([
    ["is stated", {}, 60_000],
    [
      "follows from how soon one unit is back",
      { limit: 5_000, remaining: 4_999, resetMs: 12 },
      60_000,
    ],
    ["is a day", { limit: 14_400, remaining: 14_370, resetMs: 179_560 }, 86_400_000],
    ["isn't known while nothing was used", { remaining: 600, resetMs: 0 }, undefined],
    ["is the next longer one, where all comes back at once", { refills: "at_reset" }, 60_000],
    ["isn't that of a year", { windowMs: 365 * 86_400_000 }, undefined],
  ])("%s", (_, changes, expected) => {
    const { windowMs: _stated, ...unstated } = steady;
    const quota = expected === 60_000 && Object.keys(changes).length === 0 ? steady : unstated;
    expect(windowOf({ ...quota, ...changes })).toBe(expected);
  });
});

describe("what remains of a limit", () => {
  test("is all that begins until the reset", () => {
    const { answer, begin } = follow(minute);
    answer({ remaining: 7 }, 0);
    expect(begin(0)).toBe(7);
    expect(begin(29_000)).toBe(0);
    expect(begin(31_000)).toBe(600);
    expect(begin(60_000)).toBe(0);
  });

  test("comes back one by one, where it does so steadily", () => {
    const { answer, begin } = follow(steady);
    answer({ remaining: 3 }, 0);
    expect(begin(0)).toBe(3);
    expect(begin(99)).toBe(0);
    expect(begin(100)).toBe(1);
    expect(begin(1_100)).toBe(10);
  });

  test("is divided between pods by their parts, with a margin for what the others do by chance", () => {
    const { answer, begin } = follow(minute, { part: 0.25 });
    answer({ remaining: 10 }, 0);
    expect(begin(0)).toBe(1);
    answer({ remaining: 400 }, 10);
    expect(begin(10)).toBe(87);
  });

  test("is less by the calls that began since the answer's call did", () => {
    const { answer, begin } = follow(minute);
    answer({ remaining: 10 }, 0, 4);
    expect(begin(0)).toBe(6);
  });

  test("isn't read from a call that began before the last one that was read", () => {
    const { quotas, begin } = follow(minute);
    quotas.read([{ ...minute, remaining: 2 }], { number: 9, beganMs: 0, begunSince: 0 }, 0);
    quotas.read([{ ...minute, remaining: 300 }], { number: 5, beganMs: 0, begunSince: 4 }, 5);
    expect(begin(5)).toBe(2);
  });

  test("was used by others while the pod had no part", () => {
    const { quotas, answer, begin } = follow(minute);
    answer({ remaining: 400 }, 0);
    quotas.share(0);
    quotas.share(0.5);
    expect(begin(0)).toBe(1);
    const soon = follow({ ...steady, limit: 6_000, resetMs: 1 });
    soon.answer({ remaining: 400 }, 0);
    soon.quotas.share(0);
    soon.quotas.share(0.5);
    expect(soon.begin(0)).toBe(0);
    expect(soon.begin(100)).toBeGreaterThan(0);
  });

  test("is in tokens where callers say how many a call takes", () => {
    const tokens: Quota = { ...minute, name: "tokens", unit: "tokens", limit: 100_000 };
    const counted = follow(tokens, { countsTokens: true });
    counted.answer({ remaining: 350 }, 0);
    expect(counted.begin(0)).toBe(3);
    const uncounted = follow(tokens);
    uncounted.answer({ remaining: 350 }, 0);
    expect(uncounted.begin(0, 50)).toBe(50);
    uncounted.answer({ remaining: 0, resetMs: 2_000 }, 10);
    expect(uncounted.quotas.waitMs(100, 10)).toBe(2_000);
    uncounted.answer({ remaining: 5 }, 20);
    expect(uncounted.quotas.waitMs(100, 20)).toBe(0);
  });
});

describe("what headers say wrongly", () => {
  const { windowMs: _windowMs, ...open } = minute;
  const never: Partial<Quota> = { remaining: 0, resetMs: 365 * 86_400_000 };

  test("waits no longer for a reset than the limit's own time", () => {
    const { quotas, answer } = follow(minute);
    answer(never, 0);
    expect(quotas.waitMs(1, 0)).toBe(60_100);
  });

  test("stops no pod: a call tries after five seconds, and where it is refused, later", () => {
    const { quotas, answer } = follow(open);
    let nowMs = 0;
    const waits: number[] = [];
    answer(never, nowMs);
    for (let at = 0; at < 6; at++) {
      const waitMs = quotas.waitMs(1, nowMs);
      waits.push(waitMs);
      nowMs += waitMs;
      const tried = quotas.take(1, nowMs);
      expect(tried).toEqual(["requests"]);
      expect(ends(quotas, { tried, sawNothingLeft: true }, "throttled", nowMs)).toBe(false);
      answer(never, nowMs);
    }
    expect(waits).toEqual([5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
  });

  test("is ignored for ten minutes after three calls that it should have refused", () => {
    const { quotas, answer, begin } = follow(open);
    let nowMs = 0;
    answer(never, nowMs);
    for (let at = 0; at < 3; at++) {
      expect(begin(nowMs)).toBe(0);
      nowMs += quotas.waitMs(1, nowMs);
      const tried = quotas.take(1, nowMs);
      answer(never, nowMs);
      ends(quotas, { tried, sawNothingLeft: true }, "success", nowMs);
    }
    expect(nowMs).toBeLessThan(10_000);
    answer(never, nowMs);
    expect(begin(nowMs, 50)).toBe(50);
    answer(never, nowMs + 600_001);
    expect(begin(nowMs + 600_001)).toBe(0);
  });

  test("a reset that gives back little is followed bit by bit from then on", () => {
    const { answer, begin } = follow(minute);
    answer({ remaining: 0, resetMs: 1_000 }, 0);
    expect(begin(1_100, 1)).toBe(1);
    answer({ remaining: 0, resetMs: 1_000 }, 1_100);
    expect(begin(2_200)).toBe(11);
  });

  test("a refusal although something remained is a broken promise", () => {
    const { quotas, answer } = follow(minute);
    const call = { tried: [], sawNothingLeft: false };
    expect(ends(quotas, call, "throttled", 0)).toBe(false);
    answer({}, 0);
    expect(ends(quotas, call, "throttled", 1)).toBe(true);
    expect(ends(quotas, { ...call, sawNothingLeft: true }, "throttled", 1)).toBe(false);
    expect(ends(quotas, call, "success", 1)).toBe(false);
  });

  test("calls that are refused although something should be back try ever later", () => {
    const { quotas, answer } = follow({ ...steady, windowMs: 1_000 });
    const waits: number[] = [];
    let nowMs = 0;
    for (let at = 0; at < 9; at++) {
      answer({ remaining: 0, resetMs: 30_000 }, nowMs);
      const call = { number: 10 * at + 5, tried: [], sawNothingLeft: true };
      // One that was in flight with it says nothing more.
      quotas.ended(call, { kind: "throttled", comesBack: false, begun: 10 * at + 9 }, nowMs);
      const late = { ...call, number: call.number + 1 };
      quotas.ended(late, { kind: "throttled", comesBack: false, begun: 10 * at + 9 }, nowMs);
      const waitMs = quotas.waitMs(1, nowMs);
      waits.push(waitMs);
      nowMs += waitMs;
    }
    expect(waits).toEqual([500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000, 30_000]);
    ends(quotas, { tried: [], sawNothingLeft: false }, "success", nowMs);
    answer({ remaining: 0 }, nowMs);
    const call = { number: 999, tried: [], sawNothingLeft: true };
    quotas.ended(call, { kind: "throttled", comesBack: true, begun: 999 }, nowMs);
    expect(quotas.waitMs(1, nowMs)).toBeLessThan(10);
  });

  test("what succeeds while enough remains contradicts nothing", () => {
    const { quotas, answer } = follow(open);
    answer(never, 0);
    expect(quotas.waitMs(1, 0)).toBe(5_000);
    answer({ remaining: 300, resetMs: 900_000 }, 1_000);
    for (let at = 0; at < 5; at++) expect(quotas.take(1, 6_000 * (at + 1))).toEqual([]);
  });

  test("a limit that is no longer stated stops no pod", () => {
    const { windowMs: _window, resetMs: _reset, ...bare } = minute;
    const { quotas, answer, begin } = follow(bare);
    answer({ remaining: 3 }, 0);
    expect(begin(0)).toBe(3);
    expect(quotas.waitMs(1, 0)).toBe(5_100);
    expect(begin(5_100, 5_000)).toBe(5_000);
    const slow = follow({ ...steady, limit: 1, windowMs: 86_400_000 * 30 });
    slow.answer({ remaining: 1 }, 0);
    expect(slow.begin(0)).toBe(1);
    expect(slow.quotas.waitMs(1, 0)).toBe(5_000);
    expect(slow.begin(5_000)).toBe(1);
  });

  test("a limit that calls succeed without stating is forgotten after two of its windows", () => {
    const { quotas, answer } = follow(minute);
    answer({ remaining: 4 }, 0);
    const succeed = (nowMs: number) =>
      quotas.ended(
        { number: 2, tried: [], sawNothingLeft: false },
        { kind: "success", comesBack: false, begun: 2 },
        nowMs,
      );
    succeed(120_000);
    expect(quotas.any).toBe(true);
    succeed(120_001);
    expect(quotas.any).toBe(false);
  });

  test("names that never come back make room for others", () => {
    const { quotas, begin } = follow(minute);
    for (let at = 0; at < 9; at++) {
      const call = { number: at, beganMs: 61_000 * at, begunSince: 0 };
      quotas.read([{ ...minute, name: `n${at}`, remaining: at }], call, 61_000 * at);
    }
    expect(begin(61_000 * 8)).toBe(8);
  });

  test("no more than four limits are followed", () => {
    const { quotas, begin } = follow(minute);
    const many = Array.from({ length: 9 }, (_, at) => ({
      ...minute,
      name: `n${at}`,
      remaining: at < 4 ? 50 : 0,
    }));
    quotas.read(many, { number: 1, beganMs: 0, begunSince: 0 }, 0);
    expect(begin(0)).toBe(50);
  });
});

describe("limits of which a call counts against one", () => {
  /** What GitHub states with the answer of the call with this number. */
  const github = (quotas: ReturnType<typeof createQuotas>) => {
    let last = 0;
    return (
      stated: { resource: string; limit: number; remaining: number; resetS: number },
      nowMs: number,
      number = ++last,
    ): boolean => {
      const { resource, limit, remaining, resetS } = stated;
      const headers = {
        "x-ratelimit-resource": resource,
        "x-ratelimit-limit": String(limit),
        "x-ratelimit-remaining": String(remaining),
        "x-ratelimit-reset": String(resetS),
      };
      last = Math.max(last, number);
      return quotas.read(
        readQuotas(headers, nowMs),
        { number, beganMs: nowMs, begunSince: 0 },
        nowMs,
      );
    };
  };
  const core = { resource: "core", limit: 5_000, resetS: 1_800 };
  const search = { resource: "search", limit: 30, resetS: 10 };

  test("go by the one that was stated last", () => {
    const quotas = createQuotas({ countsTokens: false, estimate: 1 });
    const answer = github(quotas);
    answer({ ...core, remaining: 4_000 }, 0);
    expect(quotas.waitMs(1, 0)).toBe(0);
    answer({ ...search, remaining: 0 }, 0);
    expect(quotas.waitMs(1, 0)).toBe(10_100);
    answer({ ...core, remaining: 3_999 }, 1_000);
    expect(quotas.waitMs(1, 1_000)).toBe(0);
    expect(quotas.promisedPerS()).toBeCloseTo(5_000 / 3_600);
  });

  test("learn nothing from one another", () => {
    const quotas = createQuotas({ countsTokens: false, estimate: 1 });
    const answer = github(quotas);
    answer({ ...search, remaining: 0 }, 0);
    // The limit for searches is whole again.
    expect(quotas.waitMs(1, 10_200)).toBe(0);
    answer({ ...core, remaining: 0 }, 10_300);
    // That the other is used up doesn't mean that it comes back bit by bit.
    expect(quotas.waitMs(1, 10_300)).toBe(5_000);
  });

  test("a call that another one answers says nothing about the first", () => {
    const quotas = createQuotas({ countsTokens: false, estimate: 1 });
    const answer = github(quotas);
    for (let at = 0; at < 5; at++) {
      const nowMs = at * 10_000;
      answer({ ...core, remaining: 0 }, nowMs);
      const waitMs = quotas.waitMs(1, nowMs);
      expect(waitMs).toBeGreaterThan(0);
      const tried = quotas.take(1, nowMs + waitMs);
      expect(tried).toEqual(['x-ratelimit-remaining "core"']);
      answer({ ...search, remaining: 29 }, nowMs + waitMs);
      ends(quotas, { tried, sawNothingLeft: false }, "success", nowMs + waitMs);
      expect(quotas.waitMs(1, nowMs + waitMs)).toBe(0);
    }
  });

  test("no more than nine of them are remembered", () => {
    const quotas = createQuotas({ countsTokens: false, estimate: 1 });
    const answer = github(quotas);
    const other = (nth: number) => ({ ...core, resource: `part ${nth}`, remaining: 9 });
    answer({ ...core, remaining: 9 }, 0, 100);
    for (let nth = 1; nth <= 8; nth++) answer(other(nth), 0);
    // It is remembered that a later answer than this one was read.
    answer({ ...core, remaining: 0 }, 0, 50);
    expect(quotas.waitMs(1, 0)).toBe(0);
    answer(other(9), 0);
    answer({ ...core, remaining: 0 }, 0, 50);
    expect(quotas.waitMs(1, 0)).toBe(5_000);
  });
});

describe("the promised rate", () => {
  test("is the lowest of all limits on requests", () => {
    const { quotas } = follow(minute);
    expect(quotas.promisedPerS()).toBe(0);
    const call = { number: 1, beganMs: 0, begunSince: 0 };
    quotas.read(
      [minute, { ...minute, name: "daily", windowMs: 86_400_000, limit: 8_640 }],
      call,
      0,
    );
    expect(quotas.promisedPerS()).toBeCloseTo(0.1);
  });

  test("isn't known where a limit or its time isn't", () => {
    const { quotas } = follow(minute);
    const { limit: _limit, ...unlimited } = minute;
    quotas.read([unlimited], { number: 1, beganMs: 0, begunSince: 0 }, 0);
    expect(quotas.promisedPerS()).toBe(0);
  });
});
