import { describe, expect, test } from "vitest";
import { eventLoopTurns } from "../../base/contract/movable-clock.ts";
import { allowing, trackAcquire, createTestLimiter } from "../contract/limiter.ts";
import type { HeldPermit } from "./permit.ts";

describe("staying away", () => {
  test("as long as the downstream demands, and a little longer, for every caller", async () => {
    const { limiter, clock } = createTestLimiter({ mode: "leader" }, 5);
    const permit = await limiter.acquire();
    permit.release({ kind: "throttled", retryAfterMs: 2_000 });
    const asked = [trackAcquire(limiter), trackAcquire(limiter, { priority: "control" })];
    await clock.advance(1_999);
    expect(asked.some((each) => each.permit)).toBe(false);
    expect(limiter.tryAcquire()).toBeUndefined();
    await clock.advance(201);
    expect(asked.every((each) => each.permit)).toBe(true);
  });

  test("no longer than `maxHoldMs`, however long the downstream demands", async () => {
    const { limiter, clock } = createTestLimiter({ mode: "leader", maxHoldMs: 1_000 }, 5);
    (await limiter.acquire()).release({ kind: "throttled", retryAfterMs: 86_400_000 });
    const asked = trackAcquire(limiter);
    await clock.advance(1_100);
    expect(asked.permit).toBeDefined();
  });

  test("as long as the source of its limit demands", async () => {
    const { limiter, clock } = createTestLimiter({}, 5);
    limiter.allow(allowing(5, { holdMs: 700 }));
    const asked = trackAcquire(limiter);
    await clock.advance(699);
    expect(asked.permit).toBeUndefined();
    await clock.advance(1);
    expect(asked.permit).toBeDefined();
  });
});

describe("an open breaker", () => {
  test("lets callers wait, and lets some through when it is half open", async () => {
    const { limiter } = createTestLimiter({}, 5);
    limiter.allow(allowing(0, { breaker: "open", holdMs: 5_000 }));
    const asked = [trackAcquire(limiter), trackAcquire(limiter)];
    await eventLoopTurns();
    expect(limiter.demand().waiting).toBe(2);
    limiter.allow(allowing(1, { breaker: "half_open", epoch: 2 }));
    await eventLoopTurns();
    expect(asked.map(({ permit }) => permit !== undefined)).toEqual([true, false]);
  });

  test('refuses them at once with `whenOpen: "fail"`, also those that wait already', async () => {
    const { limiter } = createTestLimiter({ whenOpen: "fail" }, 0);
    const early = trackAcquire(limiter);
    limiter.allow(allowing(0, { breaker: "open", holdMs: 5_000 }));
    const late = trackAcquire(limiter);
    await eventLoopTurns();
    const refused = { code: "throttle_open", retryAfterMs: 5_000, details: { throttle: "api" } };
    expect([early.error, late.error]).toMatchObject([refused, refused]);
  });
});

describe("the bucket", () => {
  const bucket = { unit: "tokens", refillPerS: 100, burstS: 10 } as const;

  test("holds back calls for which there isn't enough, until there is", async () => {
    const { limiter, clock } = createTestLimiter({ mode: "local", initial: 50, bucket });
    const first = await limiter.acquire({ estimate: 900 });
    const second = trackAcquire(limiter, { estimate: 300 });
    await eventLoopTurns();
    expect(second.permit).toBeUndefined();
    expect(limiter.findRefusal({ estimate: 300 })).toEqual({ by: "bucket", waitMs: 2_000 });
    await clock.advance(1_999);
    expect(second.permit).toBeUndefined();
    await clock.advance(1);
    expect(second.permit).toBeDefined();
    first.release("success");
  });

  test("is settled by what calls have really used, which may leave it in debt", async () => {
    const { limiter, clock } = createTestLimiter({ mode: "local", initial: 50, bucket });
    const cheap = await limiter.acquire({ estimate: 1_000 });
    cheap.used(10);
    cheap.release("success");
    expect(limiter.snapshot().bucket).toMatchObject({ available: 990, refillPerS: 100 });
    const dear = await limiter.acquire({ estimate: 10 });
    dear.release({ kind: "success", used: 1_490 });
    expect(limiter.snapshot().bucket?.available).toBe(-500);
    const next = trackAcquire(limiter, { estimate: 0 });
    await clock.advance(5_000);
    expect(next.permit).toBeDefined();
  });

  test("lets a large call go first when it is its turn, instead of starving it by small ones", async () => {
    const { limiter, clock } = createTestLimiter({ bucket });
    limiter.allow(allowing(50, { refillPerS: 100 }));
    (await limiter.acquire({ estimate: 1_000 })).release("success");
    const large = trackAcquire(limiter, { estimate: 800 });
    const small = Array.from({ length: 20 }, () => trackAcquire(limiter, { estimate: 10 }));
    await clock.advance(7_999);
    expect(small.some(({ permit }) => permit)).toBe(false);
    await clock.advance(1);
    expect(large.permit).toBeDefined();
  });
});

describe("the bucket, when a large call gives up waiting", () => {
  test("serves those behind it at once", async () => {
    const { limiter } = createTestLimiter({ bucket: { refillPerS: 100, burstS: 10 } });
    limiter.allow(allowing(50, { refillPerS: 100 }));
    (await limiter.acquire({ estimate: 900 })).release("success");
    const stop = new AbortController();
    trackAcquire(limiter, { estimate: 800, signal: stop.signal });
    const small = trackAcquire(limiter, { estimate: 10 });
    await eventLoopTurns();
    expect(small.permit).toBeUndefined();
    stop.abort();
    await eventLoopTurns();
    expect(small.permit).toBeDefined();
  });
});

describe("an allowance from outside", () => {
  test("is all there is: without one, nothing begins, and the want of one is reported", async () => {
    const { limiter } = createTestLimiter();
    let wanted = 0;
    limiter.onDemand(() => wanted++);
    const asked = trackAcquire(limiter);
    await eventLoopTurns();
    expect([asked.permit, wanted]).toEqual([undefined, 1]);
    expect(limiter.findRefusal()).toEqual({ by: "no_share" });
    limiter.setBlockedTasks(2);
    expect(wanted).toBe(2);

    limiter.allow(allowing(1));
    await eventLoopTurns();
    expect(asked.permit).toBeDefined();
    limiter.allow(undefined);
    asked.permit!.release("success");
    expect(limiter.tryAcquire()).toBeUndefined();
  });

  test("isn't forgotten while others count it, though nothing may begin", async () => {
    const { limiter, clock } = createTestLimiter({});
    limiter.allow(allowing(0, { untilMs: clock.monotonic() + 1_000 }));
    expect(limiter.isIdle()).toBe(false);
    await clock.advance(1_000);
    expect(limiter.isIdle()).toBe(true);
  });

  test("ends by itself, also where the process was stopped when it should have", async () => {
    const { limiter, clock } = createTestLimiter();
    limiter.allow(allowing(3, { untilMs: clock.monotonic() + 60_000 }));
    clock.jump(59_999);
    expect(limiter.tryAcquire()).toBeDefined();
    clock.jump(1);
    expect(limiter.tryAcquire()).toBeUndefined();
    expect(limiter.findRefusal()).toEqual({ by: "no_share" });
  });

  test("reports calls of an earlier epoch separately", async () => {
    const { limiter, clock } = createTestLimiter({ mode: "leader" }, 4);
    const [before, other] = [await limiter.acquire(), await limiter.acquire()];
    await clock.advance(100);
    other.release("success");
    limiter.allow(allowing(3, { epoch: 2 }));
    const after = await limiter.acquire();
    await clock.advance(100);
    before.release("throttled");
    after.firstToken();
    after.release("success");
    limiter.tryAcquire();

    expect(limiter.takeSample()).toMatchObject({
      epoch: 2,
      spanMs: 200,
      counts: { success: 1, throttled: 0 },
      earlier: { success: 1, throttled: 1 },
      acceptedMs: 200,
      peak: 2,
      limited: false,
    });
    expect(limiter.takeSample()).toMatchObject({ spanMs: 0, counts: { success: 0 }, peak: 1 });
  });

  test("is reported to have been too little when a call found it used up", async () => {
    const { limiter } = createTestLimiter({ mode: "leader" }, 1);
    limiter.tryAcquire();
    limiter.tryAcquire();
    expect(limiter.takeSample()).toMatchObject({ limited: true, peak: 1 });
  });
});

describe("the brake of a pod that shares a bound with others", () => {
  async function tenOut(options = {}) {
    const { limiter, clock } = createTestLimiter(options, 10);
    const out: HeldPermit[] = [];
    for (let each = 0; each < 10; each++) out.push(await limiter.acquire());
    return { limiter, clock, out, limit: () => limiter.snapshot().limit };
  }

  test("takes one off its share for a whole burst of calls that were out together", async () => {
    const { limiter, out, limit } = await tenOut();
    let told = 0;
    limiter.onThrottled(() => told++);
    for (const permit of out) permit.release("throttled");
    expect(limit()).toBe(9);
    expect(limiter.snapshot().braked).toBe(true);
    expect(told).toBe(10);
  });

  test("halves what is left when calls that began after it are throttled as well, down to one", async () => {
    const { limiter, clock, out, limit } = await tenOut();
    out[0]!.release("throttled");
    for (const permit of out.slice(1)) permit.release("success");
    const limits = [];
    for (let each = 0; each < 5; each++) {
      (await limiter.acquire()).release("throttled");
      limits.push(limit());
      await clock.advance(2_000);
    }
    expect(limits).toEqual([4, 2, 1, 1, 1]);
  });

  test("pauses where only one call is left, longer each time, until the next epoch", async () => {
    const { limiter, clock } = createTestLimiter({}, 1);
    const throttled = async () => {
      (await limiter.acquire()).release("throttled");
      return limiter.snapshot().holdMs;
    };
    expect(await throttled()).toBe(250);
    expect(limiter.tryAcquire()).toBeUndefined();
    expect(limiter.findRefusal()).toEqual({ by: "hold", waitMs: 250 });
    await clock.advance(250);
    expect(await throttled()).toBe(500);
    await clock.advance(500);
    expect(await throttled()).toBe(1_000);
    limiter.allow(allowing(1, { epoch: 2 }));
    expect(limiter.snapshot().holdMs).toBe(0);
    expect(await throttled()).toBe(250);
  });

  test("is released by the next epoch, and not by the same one sent again", async () => {
    const { limiter, out, limit } = await tenOut();
    out[0]!.release("throttled");
    limiter.allow(allowing(10));
    expect(limit()).toBe(9);
    limiter.allow(allowing(8, { epoch: 2 }));
    expect(limit()).toBe(8);
    out[1]!.release("throttled");
    expect(limit()).toBe(8);
  });

  test("is released after a while without one", async () => {
    const { clock, out, limit } = await tenOut();
    out[0]!.release("throttled");
    await clock.advance(4_000);
    expect(limit()).toBe(9);
    await clock.advance(2_000);
    expect(limit()).toBe(10);
  });

  test("isn't pulled where the leader alone decides", async () => {
    const { out, limit } = await tenOut({ mode: "leader" });
    for (const permit of out) permit.release("throttled");
    expect(limit()).toBe(10);
  });
});

describe("a pod that learns alone", () => {
  test("with the preset seed goes 2, 3, 4, 5, 6, 7, is throttled, and goes on from 3 to 4", async () => {
    const { limiter, clock } = createTestLimiter({ mode: "local", preset: "aimd" });
    const limits = [limiter.snapshot().limit];
    const note = () => {
      const { limit } = limiter.snapshot();
      if (limit !== limits.at(-1)) limits.push(limit);
    };
    let inside = 0;
    let throttled = false;
    const caller = async (): Promise<void> => {
      const permit = await limiter.acquire();
      inside++;
      // The seventh call at once is too many, once.
      const fits = throttled || inside < 7;
      throttled ||= !fits;
      await new Promise<void>((resolve) => clock.after(100, resolve));
      inside--;
      permit.release(fits ? "success" : "throttled");
      note();
      return caller();
    };
    const callers = Array.from({ length: 20 }, () => caller().catch(() => {}));
    for (let second = 0; second < 40 && limits.length < 8; second++) await clock.advance(1_000);
    limiter.close();
    await clock.advance(1_000);
    await Promise.all(callers);
    expect(limits.slice(0, 8)).toEqual([2, 3, 4, 5, 6, 7, 3, 4]);
  });

  test("goes by an allowance from outside while there is one, such as a limit that was pinned", async () => {
    const { limiter } = createTestLimiter({ mode: "local" });
    const learned = limiter.snapshot().limit;
    limiter.allow(allowing(40, { epoch: 9 }));
    expect(limiter.snapshot().limit).toBe(40);
    limiter.allow(undefined);
    expect(limiter.snapshot().limit).toBe(learned);
  });
});
