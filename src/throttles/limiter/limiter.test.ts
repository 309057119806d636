import { describe, expect, test } from "vitest";
import { eventLoopTurns } from "../../base/contract/movable-clock.ts";
import { allowing, trackAcquire, createTestLimiter } from "../contract/limiter.ts";

describe("permits", () => {
  test("are given up to the limit, and then in the order of the calls", async () => {
    const { limiter } = createTestLimiter({}, 2);
    const asked = Array.from({ length: 4 }, () => trackAcquire(limiter));
    await eventLoopTurns();
    expect(asked.map(({ permit }) => permit !== undefined)).toEqual([true, true, false, false]);
    expect(limiter.demand()).toEqual({ inFlight: 2, waiting: 2, blockedTasks: 0 });

    asked[1]!.permit!.release("success");
    await eventLoopTurns();
    expect(asked.map(({ permit }) => permit !== undefined)).toEqual([true, true, true, false]);
  });

  test("are given back once, however often they are released", async () => {
    const { limiter } = createTestLimiter({}, 3);
    const [first] = [await limiter.acquire(), await limiter.acquire()];
    first.release("success");
    first.release("throttled");
    first.release("success");

    expect(limiter.demand().inFlight).toBe(1);
    expect(limiter.snapshot().outcomes).toMatchObject({ success: 1, throttled: 0 });
  });

  test("that are out stay out when the limit falls below them, and none is given until they are back", async () => {
    const { limiter } = createTestLimiter({}, 4);
    const out = [];
    for (let each = 0; each < 4; each++) out.push(await limiter.acquire());
    limiter.allow(allowing(2, { epoch: 2 }));
    const next = trackAcquire(limiter);

    out[0]!.release("success");
    out[1]!.release("success");
    await eventLoopTurns();
    expect(next.permit).toBeUndefined();
    expect(out[2]!.signal.aborted).toBe(false);

    out[2]!.release("success");
    await eventLoopTurns();
    expect(next.permit).toBeDefined();
    expect(limiter.demand().inFlight).toBe(2);
  });

  test("are given at once when the limit rises", async () => {
    const { limiter } = createTestLimiter({}, 0);
    const asked = [trackAcquire(limiter), trackAcquire(limiter)];
    await eventLoopTurns();
    expect(limiter.demand().waiting).toBe(2);
    limiter.allow(allowing(2));
    await eventLoopTurns();
    expect(asked.every(({ permit }) => permit)).toBe(true);
  });

  test("aren't waited for by callers that have given up, which get their own reason", async () => {
    const { limiter } = createTestLimiter({}, 1);
    const held = await limiter.acquire();
    const stop = new AbortController();
    const [first, second] = [trackAcquire(limiter, { signal: stop.signal }), trackAcquire(limiter)];
    stop.abort(new Error("never mind"));
    await eventLoopTurns();
    expect(first.error).toEqual(new Error("never mind"));
    expect(limiter.demand().waiting).toBe(1);

    held.release("success");
    await eventLoopTurns();
    expect(first.permit).toBeUndefined();
    expect(second.permit).toBeDefined();
    const late = trackAcquire(limiter, { signal: stop.signal });
    await eventLoopTurns();
    expect(late.error).toEqual(new Error("never mind"));
  });

  test("are waited for by a bounded number of each priority", async () => {
    const { limiter } = createTestLimiter({ maxWaiting: 2 }, 0);
    const batch = [trackAcquire(limiter), trackAcquire(limiter), trackAcquire(limiter)];
    const urgent = trackAcquire(limiter, { priority: "interactive" });
    await eventLoopTurns();
    expect(batch.map(({ error }) => error)).toMatchObject([
      undefined,
      undefined,
      { code: "throttle_full", details: { throttle: "api", priority: "batch", maxWaiting: 2 } },
    ]);
    expect(urgent.error).toBeUndefined();
  });

  test("are waited for no longer than `maxWaitMs`", async () => {
    const { limiter, clock } = createTestLimiter({}, 0);
    const asked = trackAcquire(limiter, { maxWaitMs: 300 });
    await clock.advance(299);
    expect(asked.error).toBeUndefined();
    await clock.advance(1);
    expect(asked.error).toMatchObject({ code: "timeout", details: { maxWaitMs: 300 } });
    limiter.allow(allowing(1));
    await eventLoopTurns();
    expect(asked.permit).toBeUndefined();
    expect(limiter.demand()).toMatchObject({ inFlight: 0, waiting: 0 });
  });

  test("aren't given past a caller that waits and could have one", async () => {
    const { limiter } = createTestLimiter({ bucket: { refillPerS: 1, burstS: 10 } }, 5);
    limiter.allow(allowing(5, { refillPerS: 1 }));
    const large = await limiter.acquire({ estimate: 10 });
    trackAcquire(limiter, { estimate: 5 });
    expect(limiter.tryAcquire({ estimate: 0 })).toBeUndefined();
    large.release("success");
  });

  test("are refused to all when the pod stops", async () => {
    const { limiter, clock } = createTestLimiter({}, 1);
    const held = await limiter.acquire();
    const waits = trackAcquire(limiter);
    limiter.close();
    const late = trackAcquire(limiter);
    await eventLoopTurns();
    expect(waits.error).toMatchObject({ code: "closed" });
    expect(late.error).toMatchObject({ code: "closed" });
    expect(limiter.tryAcquire()).toBeUndefined();
    held.release("success");
    expect(limiter.demand().inFlight).toBe(0);
    expect(clock.timers).toBe(0);
  });
});

describe("reservations", () => {
  const reserve = { control: 2, interactive: 1 };

  test("survive a flood of other calls", async () => {
    const { limiter } = createTestLimiter({ reserve }, 10);
    const flood = Array.from({ length: 50 }, () => trackAcquire(limiter));
    await eventLoopTurns();
    expect(flood.filter(({ permit }) => permit)).toHaveLength(7);

    const control = [1, 2, 3].map(() => trackAcquire(limiter, { priority: "control" }));
    const chat = [1, 2].map(() => trackAcquire(limiter, { priority: "interactive" }));
    await eventLoopTurns();
    expect(control.filter(({ permit }) => permit)).toHaveLength(2);
    expect(chat.filter(({ permit }) => permit)).toHaveLength(1);
    expect(limiter.demand().inFlight).toBe(10);
  });

  test("leave the last permit to any caller", async () => {
    const { limiter } = createTestLimiter({ reserve }, 1);
    expect(limiter.tryAcquire()).toBeDefined();

    const three = createTestLimiter({ reserve: { control: 3 } }, 3).limiter;
    const control = [1, 2].map(() => three.tryAcquire({ priority: "control" }));
    expect(control.every(Boolean)).toBe(true);
    expect(three.tryAcquire()).toBeDefined();
  });

  test("don't keep out those they are made for, when everything else is taken", async () => {
    const { limiter } = createTestLimiter({ reserve: { retry: 1 } }, 2);
    expect(limiter.tryAcquire()).toBeDefined();
    expect(limiter.tryAcquire()).toBeUndefined();
    expect(limiter.tryAcquire({ priority: "interactive" })).toBeUndefined();
    expect(limiter.tryAcquire({ priority: "retry" })).toBeDefined();
  });
});

describe("a call's time", () => {
  test("is up after `callTimeoutMs`: its signal fires, and after a grace its permit is back", async () => {
    const { limiter, clock } = createTestLimiter({ callTimeoutMs: 2_500, graceMs: 400 }, 1);
    const hung = await limiter.acquire();
    const next = trackAcquire(limiter);
    await clock.advance(2_499);
    expect(hung.signal.aborted).toBe(false);
    await clock.advance(1);
    expect(hung.signal.aborted).toBe(true);
    expect(hung.signal.reason).toMatchObject({ code: "timeout" });
    await clock.advance(399);
    expect(next.permit).toBeUndefined();
    await clock.advance(1);
    expect(hung.released).toBe(true);
    expect(next.permit).toBeDefined();
    expect(limiter.snapshot().outcomes.timeout).toBe(1);

    hung.release("success");
    expect(limiter.demand().inFlight).toBe(1);
  });

  test("is shorter if the call's own limit is, and never longer than others count on", async () => {
    const { limiter, clock } = createTestLimiter({ callTimeoutMs: 5_000 }, 2);
    const short = await limiter.acquire({ timeoutMs: 70 });
    const long = await limiter.acquire({ timeoutMs: 60_000 });
    await clock.advance(70);
    expect([short.signal.aborted, long.signal.aborted]).toEqual([true, false]);
    await clock.advance(4_930);
    expect(long.signal.aborted).toBe(true);
  });

  test("is watched over by one timer for all calls, and none when there are none", async () => {
    const { limiter, clock } = createTestLimiter({}, 1_000);
    const permits = [];
    for (let each = 0; each < 1_000; each++) permits.push(await limiter.acquire());
    expect(clock.timers).toBe(1);
    for (const permit of permits) permit.release("success");
    await clock.advance(5_000);
    expect(clock.timers).toBe(0);
  });

  test("ends early for the caller's signal, and its permit is back after the grace though it goes on", async () => {
    const { limiter, clock } = createTestLimiter({ graceMs: 100 }, 1);
    const stop = new AbortController();
    const permit = await limiter.acquire({ signal: stop.signal });
    stop.abort("enough");
    expect(permit.signal.aborted).toBe(true);
    expect(permit.signal.reason).toBe("enough");
    expect(limiter.demand().inFlight).toBe(1);
    await clock.advance(100);
    expect(limiter.demand().inFlight).toBe(0);
    expect(limiter.snapshot().outcomes.ignored).toBe(1);
  });

  test("is the downstream's fault where the caller's signal was a time limit", async () => {
    const { limiter, clock } = createTestLimiter({ graceMs: 100 }, 1);
    const stop = new AbortController();
    await limiter.acquire({ signal: stop.signal });
    stop.abort(new DOMException("late", "TimeoutError"));
    await clock.advance(100);
    expect(limiter.snapshot().outcomes).toMatchObject({ timeout: 1, ignored: 0 });
  });
});

describe("findRefusal", () => {
  test("returns what holds a call back, and how long that will be", async () => {
    const { limiter, clock } = createTestLimiter({}, 1);
    expect(limiter.findRefusal()).toBeUndefined();
    const permit = await limiter.acquire();
    expect(limiter.findRefusal()).toEqual({ by: "limit" });
    await clock.advance(200);
    permit.release("success");
    const again = await limiter.acquire();
    limiter.setBlockedTasks(3);
    expect(limiter.findRefusal()).toEqual({ by: "limit", waitMs: 800 });
    again.release({ kind: "throttled", retryAfterMs: 1_000 });
    const held = limiter.findRefusal();
    expect(held?.by).toBe("hold");
    expect(held?.waitMs).toBeGreaterThanOrEqual(1_000);
    limiter.allow(allowing(0, { breaker: "open", holdMs: 9_000 }));
    expect(limiter.findRefusal()).toEqual({ by: "breaker", waitMs: 9_000 });
    limiter.allow(allowing(0));
    await clock.advance(2_000);
    expect(limiter.findRefusal()).toEqual({ by: "no_share" });
  });
});

test("callers that wait get their place and the expected time, until they have their permit", async () => {
  const { limiter, clock } = createTestLimiter({}, 1);
  const first = await limiter.acquire();
  await clock.advance(400);
  first.release("success");
  const held = await limiter.acquire();
  const told: Record<string, unknown[]> = { soon: [], late: [], urgent: [] };
  const ask = (who: string, priority?: "interactive") =>
    trackAcquire(limiter, { priority, onWaiting: (at) => void told[who]!.push(at) });
  ask("soon");
  ask("late");
  const urgent = ask("urgent", "interactive");
  await clock.advance(100);
  expect(told).toEqual({ soon: [], late: [], urgent: [] });
  await clock.advance(150);
  expect(told).toEqual({
    soon: [{ ahead: 1, aboutMs: 800 }],
    late: [{ ahead: 2, aboutMs: 1_200 }],
    urgent: [{ ahead: 0, aboutMs: 400 }],
  });
  held.release("ignored");
  await clock.advance(3_000);
  expect(urgent.permit).toBeDefined();
  expect(told["urgent"]).toHaveLength(1);
  expect(told["soon"]).toHaveLength(4);
  expect(told["late"]!.at(-1)).toEqual({ ahead: 1, aboutMs: 800 });
});

test("a caller that joins a queue whose callers know their place learns its own after its own quarter of a second", async () => {
  const { limiter, clock } = createTestLimiter({}, 1);
  await limiter.acquire();
  const told: string[] = [];
  trackAcquire(limiter, { onWaiting: () => void told.push("first") });
  await clock.advance(200);
  trackAcquire(limiter, { onWaiting: () => void told.push("second") });
  await clock.advance(50);
  expect(told).toEqual(["first"]);
  await clock.advance(199);
  expect(told).toEqual(["first"]);
  await clock.advance(1);
  expect(told).toContain("second");
});
