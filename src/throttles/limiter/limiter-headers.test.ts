import { describe, expect, test } from "vitest";
import { allowing, createTestLimiter, trackAcquire } from "../contract/limiter.ts";
import type { StatedRate } from "./limiter.ts";

const stating = (remaining: number, more: Record<string, string> = {}) => ({
  "x-ratelimit-limit-requests": "600",
  "x-ratelimit-remaining-requests": String(remaining),
  "x-ratelimit-reset-requests": `${(600 - remaining) / 10}s`,
  ...more,
});

const response = (status: number, headers: Record<string, string>) => ({
  status,
  headers: { get: (name: string) => headers[name] ?? null },
});

describe("what answers state about the downstream's limits", () => {
  test("bounds the calls that begin, before any is refused", async () => {
    const { limiter, clock } = createTestLimiter({ mode: "leader" }, 50);
    const first = await limiter.acquire();
    first.headers(stating(3));
    first.release("success");
    const asked = Array.from({ length: 10 }, () => trackAcquire(limiter));
    const begun = () => asked.filter(({ permit }) => permit).length;
    await clock.advance(0);
    expect(begun()).toBe(3);
    expect(limiter.findRefusal()).toMatchObject({ by: "bucket" });
    // 600 a minute are one in 100 ms.
    await clock.advance(100);
    expect(begun()).toBe(4);
    await clock.advance(600);
    expect(begun()).toBe(10);
  });

  test("is read from responses and errors of any status, and from what a call reports", async () => {
    const answers: [string, unknown][] = [
      ["success", response(200, stating(7))],
      ["ignored", response(404, stating(7))],
      ["server_error", { status: 500, headers: stating(7) }],
      ["throttled", { name: "RateLimitError", status: 429, responseHeaders: stating(7) }],
      ["ignored", { cause: { response: response(400, stating(7)) } }],
    ];
    for (const [kind, thing] of answers) {
      const { limiter } = createTestLimiter({ mode: "leader" }, 50);
      const permit = await limiter.acquire();
      const outcome = limiter.outcomeOf(permit, thing);
      expect(outcome.kind).toBe(kind);
      permit.release("success");
      expect(limiter.takeSample()).toMatchObject({ promisedPerS: 10 });
    }
  });

  test("is read even where the caller classifies outcomes", async () => {
    const { limiter } = createTestLimiter({ mode: "leader", classify: () => "ignored" }, 50);
    const permit = await limiter.acquire();
    permit.release(limiter.outcomeOf(permit, response(200, stating(7))));
    expect(limiter.takeSample()).toMatchObject({ promisedPerS: 10, counts: { ignored: 1 } });
  });

  test("is divided by the pod's part of all shares", async () => {
    const { limiter } = createTestLimiter({ mode: "leader" }, 50);
    limiter.allow(allowing(50, { part: 0.25 }));
    const first = await limiter.acquire();
    first.headers(stating(40));
    first.release("success");
    // A tenth of the part is kept for what the other pods do by chance.
    expect(limiter.freePermits(50)).toBe(9);
    expect(limiter.setAside(50)).toBe(9);
  });

  test("a rate is reported with the first success, so that the fleet grows to it", async () => {
    const { limiter, clock } = createTestLimiter({ mode: "leader" }, 50);
    const told: StatedRate[] = [];
    limiter.onRate((rate) => told.push(rate));
    const [first, second] = [await limiter.acquire(), await limiter.acquire()];
    first.headers(stating(7));
    expect(told).toEqual([]);
    await clock.advance(200);
    // A call that fails says nothing about how long calls take.
    first.release("server_error");
    expect(told).toEqual([]);
    second.headers(stating(6));
    second.release("success");
    expect(told).toEqual([{ perS: 10, latencyMs: 200 }]);
    const third = await limiter.acquire();
    third.headers(stating(5));
    third.release("success");
    expect(told).toHaveLength(1);
  });

  test("a pod that learns alone grows to a rate with its first success", async () => {
    const { limiter, clock } = createTestLimiter({ mode: "local" });
    const first = await limiter.acquire();
    const { limit } = limiter.snapshot();
    await clock.advance(400);
    first.headers(stating(590));
    first.release("success");
    // Ten a second of 400 ms each are four at once, and one is spare. Durations are rounded up.
    expect([limit, limiter.snapshot().limit]).toEqual([2, 6]);
  });

  test("a refusal that says that nothing remains pulls no brake, and breaks no promise", async () => {
    const { limiter } = createTestLimiter({}, 10);
    const permit = await limiter.acquire();
    const refused = response(429, stating(0, { "retry-after-ms": "50" }));
    permit.release(limiter.outcomeOf(permit, refused));
    expect(limiter.snapshot()).toMatchObject({ limit: 10, braked: false });
    expect(limiter.takeSample()).toMatchObject({ broken: 0, rateLimited: 1 });
  });

  test("a refusal although something remained pulls it, and is reported", async () => {
    const { limiter } = createTestLimiter({}, 10);
    const permit = await limiter.acquire();
    permit.release(limiter.outcomeOf(permit, response(429, stating(300))));
    expect(limiter.snapshot()).toMatchObject({ limit: 9, braked: true });
    expect(limiter.takeSample()).toMatchObject({ broken: 1, rateLimited: 0 });
  });

  test("nonsense changes nothing", async () => {
    const { limiter } = createTestLimiter({ mode: "leader" }, 50);
    const permit = await limiter.acquire();
    for (const limit of ["0", "-1", "1000000000000", "x".repeat(10_000)]) {
      permit.headers({ ...stating(0), "x-ratelimit-limit-requests": limit });
    }
    const throwing = {
      get: () => {
        throw new Error("no headers");
      },
    };
    permit.headers(throwing);
    expect(limiter.takeSample()).toMatchObject({ promisedPerS: 0 });
    expect(limiter.freePermits(50)).toBe(49);
  });
});

describe("the brake of a pod", () => {
  /** Refused until only one call is left, and that one too, so that it pauses. */
  async function paused() {
    const { limiter, clock } = createTestLimiter({}, 8);
    const call = async (kind: "throttled" | "success") => {
      (await limiter.acquire()).release(kind);
      return limiter.snapshot().limit;
    };
    const limits: number[] = [];
    for (let at = 0; at < 4; at++) limits.push(await call("throttled"));
    expect(limits).toEqual([7, 3, 1, 1]);
    await clock.advance(250);
    return { limiter, clock, call };
  }

  test("eases where refusals have passed by themselves", async () => {
    const { limiter, clock, call } = await paused();
    const limits: number[] = [];
    for (let at = 0; at < 9; at++) limits.push(await call("success"));
    expect(limits).toEqual([2, 2, 4, 4, 4, 4, 8, 8, 8]);
    await clock.advance(5_000);
    expect(limiter.snapshot().braked).toBe(false);
  });

  test("stays where a call is refused on that way", async () => {
    const { call } = await paused();
    expect(await call("success")).toBe(2);
    expect(await call("throttled")).toBe(1);
    for (let at = 0; at < 9; at++) expect(await call("success")).toBe(1);
  });

  test("stays where fewer calls at once were enough", async () => {
    const { limiter } = createTestLimiter({}, 8);
    (await limiter.acquire()).release("throttled");
    (await limiter.acquire()).release("throttled");
    for (let at = 0; at < 9; at++) (await limiter.acquire()).release("success");
    expect(limiter.snapshot().limit).toBe(3);
  });
});
