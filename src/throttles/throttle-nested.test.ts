import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type MovableClock, movableClock, eventLoopTurns } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import type { HeldPermit } from "./limiter/permit.ts";
import { shareWithProcess, runInThrottleScope, currentScope } from "./scope.ts";
import { declarationOf, type Throttle, throttle } from "./throttle.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "./registry.ts";

let clock: MovableClock;
let throttles: ThrottleRegistry;

beforeEach(() => {
  clock = movableClock();
  throttles = createThrottleRegistry({ clock, random: seededRandom(1) });
});
afterEach(() => throttles.close());

const inPod = <Result>(fn: () => Result) => runInThrottleScope({ throttles }, fn);
const limiterOf = (made: Throttle, of = throttles) => of.of(declarationOf(made).declared);
const outcomesOf = (made: Throttle) => limiterOf(made).snapshot().outcomes;
const sleep = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
const one = { initial: 1, max: 1 } as const;
const tooMany = () => Promise.reject(Object.assign(new Error("too many"), { status: 429 }));

describe("a call inside of a call to the same downstream", () => {
  test("passes under its permit, also several levels down, and counts once", async () => {
    const api = throttle("api", one);
    const result = await inPod(() => api.run(() => api.run(() => api.run(() => "deep"))));
    expect(result).toBe("deep");
    expect(outcomesOf(api)).toMatchObject({ success: 1, ignored: 0 });
  });

  test("takes turns with others beside it where there is one permit for all", async () => {
    const api = throttle("api", one);
    let inside = 0;
    let most = 0;
    const call = async () => {
      most = Math.max(most, ++inside);
      await sleep(10);
      inside--;
    };
    const all = inPod(() => api.run(() => Promise.all([1, 2, 3].map(() => api.run(call)))));
    await clock.advance(30);
    await all;
    expect(most).toBe(1);
  });

  test("has a permit of its own where others run beside it and there are more", async () => {
    const api = throttle("api", { initial: 2 });
    let most = 0;
    const call = async () => {
      most = Math.max(most, limiterOf(api).demand().inFlight);
      await sleep(10);
    };
    const all = inPod(() => api.run(() => Promise.all([1, 2, 3].map(() => api.run(call)))));
    await clock.advance(30);
    await all;
    expect(most).toBe(2);
  });

  test("that waits for its turn can be given up", async () => {
    const api = throttle("api", one);
    const stop = new AbortController();
    const all = inPod(() =>
      api.run(async () => {
        const first = api.run(() => sleep(20));
        const second = api.run(() => "never", { signal: stop.signal });
        const third = api.run(() => "third");
        await eventLoopTurns();
        stop.abort("enough");
        await expect(second).rejects.toBe("enough");
        await first;
        return third;
      }),
    );
    await clock.advance(20);
    expect(await all).toBe("third");
  });

  test("reports being throttled when it happens, though it is repeated and succeeds in the end", async () => {
    const api = throttle("api", { mode: "local", preset: "aimd", initial: 8 });
    await inPod(() =>
      api.run(async () => {
        await api.run(tooMany).catch(() => {});
        expect(limiterOf(api).snapshot().limit).toBe(4);
        await api.run(() => "fine");
      }),
    );
    expect(outcomesOf(api)).toMatchObject({ throttled: 1, success: 1 });
  });

  test("reports it once, where the outer call fails for the same reason", async () => {
    const api = throttle("api", { initial: 8 });
    await inPod(() => expect(api.run(() => api.run(tooMany))).rejects.toThrow("too many"));
    expect(outcomesOf(api)).toMatchObject({ throttled: 1, success: 0 });
  });

  test("to another downstream, or with another key, needs a permit of its own", async () => {
    const [api, other] = [throttle("api", one), throttle("other", one)];
    await inPod(() =>
      api.run(() =>
        other.run(async () => {
          expect(limiterOf(other).demand().inFlight).toBe(1);
          await api.key("large").run(() => {});
        }),
      ),
    );
    expect(outcomesOf(other).success).toBe(1);
    expect(throttles.find("api", "large")?.snapshot().outcomes.success).toBe(1);
  });

  test("that outlives it needs a permit of its own", async () => {
    const api = throttle("api", one);
    let late: Promise<string> | undefined;
    await inPod(() =>
      api.run(() => {
        late = sleep(10).then(() => api.run(() => "late"));
      }),
    );
    const held = limiterOf(api).tryAcquire()!;
    await clock.advance(10);
    expect(limiterOf(api).demand().waiting).toBe(1);
    held.release("success");
    expect(await late).toBe("late");
  });
});

describe("a handler whose task was claimed with a permit", () => {
  const claimed = (api: Throttle) => {
    const limiter = limiterOf(api);
    const permit: HeldPermit = limiter.tryAcquire()!;
    return { limiter, permits: [{ limiter, permit }] };
  };

  test("hands it to its first call, and the next ones acquire their own", async () => {
    const api = throttle("api", one);
    const { limiter, permits } = claimed(api);
    await clock.advance(500);
    const handled = runInThrottleScope({ throttles, permits }, async () => {
      await api.run(() => sleep(100));
      expect(limiter.demand().inFlight).toBe(0);
      await api.run(() => {});
    });
    await clock.advance(100);
    await handled;
    expect(outcomesOf(api).success).toBe(2);
    // The time since the claim is the handler's own.
    expect(limiter.takeSample().acceptedMs).toBe(100);
  });

  test("hands it to one of several calls that it makes at once", async () => {
    const api = throttle("api", one);
    const { limiter, permits } = claimed(api);
    const handled = runInThrottleScope({ throttles, permits }, () =>
      Promise.all([1, 2, 3].map(() => api.run(() => sleep(10)))),
    );
    await eventLoopTurns();
    expect(limiter.demand()).toMatchObject({ inFlight: 1, waiting: 2 });
    await clock.advance(30);
    await handled;
    expect(outcomesOf(api).success).toBe(3);
  });

  test("is the call itself if it makes none: its ending is the outcome", async () => {
    const api = throttle("api", { initial: 4 });
    await runInThrottleScope({ throttles, permits: claimed(api).permits }, () => "done");
    await expect(
      runInThrottleScope({ throttles, permits: claimed(api).permits }, tooMany),
    ).rejects.toThrow("too many");
    expect(outcomesOf(api)).toMatchObject({ success: 1, throttled: 1 });
    expect(limiterOf(api).demand().inFlight).toBe(0);
  });

  test("gives it up with its end: what it leaves running acquires its own", async () => {
    const api = throttle("api", one);
    const { limiter, permits } = claimed(api);
    let late: Promise<unknown> | undefined;
    await runInThrottleScope({ throttles, permits }, () => {
      late = sleep(10).then(() => api.run(() => "late"));
    });
    expect(limiter.demand().inFlight).toBe(0);
    await clock.advance(10);
    expect(await late).toBe("late");
    expect(outcomesOf(api).success).toBe(2);
  });

  test("gives its calls the priority of its task", async () => {
    const api = throttle("api", { reserve: { retry: 1 }, initial: 2 });
    await runInThrottleScope({ throttles, priority: "retry" }, async () => {
      await api.run(() => expect(limiterOf(api).snapshot().inFlightOf.retry).toBe(1));
      await api.run(() => expect(limiterOf(api).snapshot().inFlightOf.control).toBe(1), {
        priority: "control",
      });
    });
  });
});

describe("whose permits are used", () => {
  test("are those of the pod whose handler it is, where several are in one process", async () => {
    const other = createThrottleRegistry({ clock, random: seededRandom(2) });
    const api = throttle("api");
    await inPod(() => api.run(() => {}));
    await runInThrottleScope({ throttles: other }, () => api.run(() => {}));
    await runInThrottleScope({ throttles: other }, () => api.run(() => {}));
    expect(limiterOf(api).snapshot().outcomes.success).toBe(1);
    expect(limiterOf(api, other).snapshot().outcomes.success).toBe(2);
  });

  test("are the only pod's outside of handlers, else the process's own", async () => {
    const other = createThrottleRegistry({ clock, random: seededRandom(2) });
    const before = currentScope().throttles;
    const leave = shareWithProcess(throttles);
    expect(currentScope().throttles).toBe(throttles);
    const leaveOther = shareWithProcess(other);
    expect(currentScope().throttles).toBe(before);
    leave();
    expect(currentScope().throttles).toBe(other);
    leaveOther();
    expect(currentScope().throttles).toBe(before);
    expect(await throttle("of the process").run(() => "done")).toBe("done");
    expect(before.find("of the process")).toBeDefined();
  });

  test("are those that others allow, where the pod shares them", async () => {
    const shared = createThrottleRegistry({ clock, random: seededRandom(1), shared: true });
    const [api, alone] = [throttle("api"), throttle("alone", { mode: "local" })];
    expect(limiterOf(api, shared).snapshot()).toMatchObject({ limit: 0, mode: "hybrid" });
    expect(limiterOf(alone, shared).snapshot().limit).toBeGreaterThan(0);
    expect(limiterOf(api).snapshot().mode).toBe("local");
  });
});
