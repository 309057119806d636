import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type MovableClock, movableClock, eventLoopTurns } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import { runInThrottleScope, scopeStorage } from "./scope.ts";
import { declarationOf, type Throttle, throttle } from "./throttle.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "./registry.ts";

let clock: MovableClock;
let throttles: ThrottleRegistry;
let inside: number;

beforeEach(() => {
  clock = movableClock();
  throttles = createThrottleRegistry({ clock, random: seededRandom(1) });
  inside = 0;
});
afterEach(() => throttles.close());

const inPod = <Result>(fn: () => Result) => runInThrottleScope({ throttles }, fn);
const limiterOf = (made: Throttle) => throttles.of(declarationOf(made).declared);
const inFlight = (made: Throttle) => limiterOf(made).demand().inFlight;
const sleep = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
const call = async (durationMs = 100) => {
  inside++;
  await sleep(durationMs);
  inside--;
};
const one = { initial: 1, max: 1 } as const;

describe("a permit is out for as long as calls are made under it", () => {
  test("though the call around them has failed, also for those that waited for their turn", async () => {
    const api = throttle("api", one);
    const first = () => sleep(10).then(() => Promise.reject(new Error("first")));
    const failing = inPod(() =>
      api.run(() => Promise.all([api.run(first), api.run(() => call()), api.run(() => call())])),
    );
    await Promise.all([expect(failing).rejects.toThrow("first"), clock.advance(10)]);
    let most = 0;
    for (let passedMs = 0; passedMs < 250; passedMs += 10) {
      most = Math.max(most, inside);
      expect(inFlight(api)).toBeGreaterThanOrEqual(inside);
      await clock.advance(10);
    }
    expect({ most, inside, inFlight: inFlight(api) }).toEqual({ most: 1, inside: 0, inFlight: 0 });
  });

  test("though the call around them didn't wait for them, and counts once", async () => {
    const api = throttle("api", one);
    const result = await inPod(() =>
      api.run(async () => {
        void api.run(() => call());
        await eventLoopTurns();
        return "done";
      }),
    );
    expect(result).toBe("done");
    expect({ inside, inFlight: inFlight(api) }).toEqual({ inside: 1, inFlight: 1 });
    await clock.advance(100);
    expect({ inside, inFlight: inFlight(api) }).toEqual({ inside: 0, inFlight: 0 });
    expect(limiterOf(api).snapshot().outcomes).toMatchObject({ success: 1, ignored: 0 });
  });

  test("but no longer than a call may take, and nothing begins under it then", async () => {
    const api = throttle("api", { ...one, callTimeoutMs: 1_000, graceMs: 100 });
    let later = 0;
    const hanging = inPod(() =>
      api.run(() =>
        Promise.all([api.run(() => call(2_000)), api.run(() => (later = inFlight(api)))]),
      ),
    );
    let thrown: unknown;
    hanging.catch((error: unknown) => void (thrown = error));
    await clock.advance(1_000);
    await clock.advance(100);
    expect(thrown).toMatchObject({ code: "timeout" });
    expect(inFlight(api)).toBe(0);
    await clock.advance(900);
    await eventLoopTurns();
    expect({ later, inFlight: inFlight(api) }).toEqual({ later: 1, inFlight: 0 });
  });
});

test("what calls held that are over isn't kept by those that began inside of them", async () => {
  const api = throttle("api", { initial: 2 });
  let deepest = 0;
  const chained = async (left: number): Promise<void> => {
    let depth = 0;
    for (let held = scopeStorage.getStore()?.held; held; held = held.outer) depth++;
    deepest = Math.max(deepest, depth);
    if (left === 0) return;
    let began: Promise<void> | undefined;
    await api.run(() => {
      began = eventLoopTurns().then(() => chained(left - 1));
    });
    await began;
  };
  await inPod(() => chained(50));
  expect(deepest).toBeLessThan(5);
});

describe("the permit that a task was claimed with", () => {
  const claimed = (api: Throttle) => {
    const limiter = limiterOf(api);
    return { limiter, permits: [{ limiter, permit: limiter.tryAcquire()! }] };
  };

  test("lets no call begin while the downstream demands that all callers stay away", async () => {
    const api = throttle("api", { initial: 4 });
    const { limiter, permits } = claimed(api);
    let began = false;
    const handled = runInThrottleScope({ throttles, permits }, async () => {
      await sleep(100);
      await api.run(() => void (began = true));
    });
    limiter.tryAcquire()!.release({ kind: "throttled", retryAfterMs: 10_000 });
    await clock.advance(100);
    await eventLoopTurns();
    expect({ began, demand: limiter.demand() }).toMatchObject({
      began: false,
      demand: { inFlight: 0, waiting: 1 },
    });
    await clock.advance(12_000);
    await handled;
    expect(began).toBe(true);
    expect(limiter.demand()).toMatchObject({ inFlight: 0, waiting: 0 });
  });

  test("is left to the next call by one whose caller has given up", async () => {
    const api = throttle("api", one);
    const { limiter, permits } = claimed(api);
    let began = false;
    const signal = AbortSignal.abort(new Error("enough"));
    await runInThrottleScope({ throttles, permits }, async () => {
      await expect(api.run(() => void (began = true), { signal })).rejects.toThrow("enough");
      await expect(api.acquire({ signal })).rejects.toThrow("enough");
      expect(limiter.demand().inFlight).toBe(1);
      await api.run(() => "done");
    });
    expect(began).toBe(false);
    expect(limiter.demand().inFlight).toBe(0);
  });
});
