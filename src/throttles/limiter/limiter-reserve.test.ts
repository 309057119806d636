import { describe, expect, test } from "vitest";
import { eventLoopTurns } from "../../base/contract/movable-clock.ts";
import { allowing, trackAcquire, createTestLimiter } from "../contract/limiter.ts";

describe("permits that are reserved for tasks which are being claimed", () => {
  test("aren't given to others until they are returned, and then go to waiting calls", async () => {
    const { limiter } = createTestLimiter({}, 3);
    expect(limiter.setAside(2)).toBe(2);
    expect(limiter.setAside(5)).toBe(1);
    expect(limiter.freePermits(5)).toBe(0);
    expect(limiter.tryAcquire()).toBeUndefined();
    const asked = [trackAcquire(limiter), trackAcquire(limiter)];
    limiter.returnReserved(1);
    await eventLoopTurns();
    expect(asked.map(({ permit }) => permit !== undefined)).toEqual([true, false]);
    limiter.returnReserved(2);
    await eventLoopTurns();
    expect(asked.every(({ permit }) => permit)).toBe(true);
    expect(limiter.demand()).toEqual({ inFlight: 2, waiting: 0, blockedTasks: 0 });
  });

  test("are held as calls are, so that no share is given up that they need", () => {
    const { limiter } = createTestLimiter({}, 3);
    limiter.setAside(2);
    expect(limiter.demand().inFlight).toBe(2);
    expect(limiter.isIdle()).toBe(false);
  });

  test("don't count as what the downstream takes, unless tasks come for them", () => {
    const { limiter } = createTestLimiter({}, 3);
    limiter.setAside(3);
    limiter.returnReserved(3);
    expect(limiter.takeSample()).toMatchObject({ peak: 0, limited: false, counts: { ignored: 0 } });
    limiter.setAside(3);
    expect(limiter.useReserved({ priority: "retry" })).toBeDefined();
    limiter.returnReserved(2);
    expect(limiter.takeSample()).toMatchObject({ peak: 1, limited: false });
    expect(limiter.snapshot().inFlightOf).toMatchObject({ retry: 1, batch: 0 });
    limiter.setBlockedTasks(5);
    expect(limiter.setAside(5)).toBe(2);
    expect(limiter.takeSample()).toMatchObject({ limited: true });
  });

  test("overtake no waiting call", () => {
    const { limiter } = createTestLimiter({}, 1);
    const permit = limiter.tryAcquire()!;
    trackAcquire(limiter);
    limiter.allow(allowing(1, { holdMs: 1_000 }));
    permit.release("success");
    expect(limiter.demand()).toMatchObject({ inFlight: 0, waiting: 1 });
    expect(limiter.setAside(1)).toBe(0);
  });

  test("leave what is kept for the more urgent, and what the bucket doesn't hold", () => {
    const { limiter } = createTestLimiter({ reserve: { interactive: 2 } }, 4);
    expect(limiter.setAside(9)).toBe(2);
    expect(limiter.setAside(9, { priority: "interactive" })).toBe(2);
    const { limiter: metered } = createTestLimiter({ bucket: { unit: "tokens" } }, 9);
    metered.allow(allowing(9, { refillPerS: 100 }));
    const { available } = metered.snapshot().bucket!;
    const estimate = Math.floor(available! / 3);
    expect(metered.setAside(9, { estimate })).toBe(3);
  });

  test.each([
    ["was lost", { untilMs: 0 }],
    ["has become less than what is in flight", { limit: 0 }],
    ["is held", { holdMs: 1_000 }],
    ["is cut off by the breaker", { breaker: "open" }],
  ] as const)("can't be used when the pod's share %s meanwhile", (_, change) => {
    const { limiter } = createTestLimiter({}, 2);
    limiter.setAside(1);
    limiter.allow(allowing(2, change));
    expect(limiter.useReserved()).toBeUndefined();
    expect(limiter.demand().inFlight).toBe(0);
  });

  test("can't become calls that begin after the share is lost, not even by the task that has one", async () => {
    const { limiter, clock } = createTestLimiter({});
    limiter.allow(allowing(2, { untilMs: clock.monotonic() + 1_000 }));
    limiter.setAside(2);
    const [soon, late] = [limiter.useReserved()!, limiter.useReserved()!];
    await clock.advance(999);
    expect(limiter.takeOver(soon)).toBe(soon);
    await clock.advance(1);
    expect(limiter.takeOver(late)).toBeUndefined();
    expect(late.released).toBe(true);
    expect(limiter.demand().inFlight).toBe(1);
  });

  test("measure how long calls last by the one that began first, not by the one that was granted first", async () => {
    const { limiter, clock } = createTestLimiter({}, 2);
    limiter.setAside(1);
    const handed = limiter.useReserved()!;
    const other = limiter.tryAcquire()!;
    await clock.advance(5_000);
    limiter.takeOver(handed);
    expect(limiter.longestMs()).toBe(5_000);
    await clock.advance(1_000);
    other.release("ignored");
    expect(limiter.longestMs()).toBe(6_000);
  });

  test("are offered to blocked tasks, whenever there may be some", () => {
    const { limiter } = createTestLimiter({}, 1);
    let offers = 0;
    limiter.onFreePermits(() => offers++);
    limiter.tryAcquire()!.release("success");
    expect(offers).toBe(0);
    limiter.setBlockedTasks(1);
    limiter.tryAcquire()!.release("success");
    expect(offers).toBe(1);
    limiter.allow(allowing(2));
    expect(offers).toBe(2);
  });
});
