import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { type MovableClock, movableClock, eventLoopTurns } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import { runInThrottleScope } from "./scope.ts";
import { declarationOf, type Throttle, throttle } from "./throttle.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "./registry.ts";

let clock: MovableClock;
let throttles: ThrottleRegistry;

beforeEach(() => {
  clock = movableClock();
  throttles = createThrottleRegistry({ clock, random: seededRandom(1) });
});
afterEach(() => throttles.close());

/** Runs as a handler of the pod under test would. */
const inPod = <Result>(fn: () => Result) => runInThrottleScope({ throttles }, fn);
const limiterOf = (made: Throttle) => {
  const { declared, key } = declarationOf(made);
  return throttles.of(declared, key);
};
const outcomesOf = (made: Throttle) => limiterOf(made).snapshot().outcomes;
const inFlightOf = (made: Throttle) => limiterOf(made).demand().inFlight;
const sleep = (ms: number) => new Promise<void>((resolve) => clock.after(ms, resolve));
const status = (code: number) => Object.assign(new Error(`status ${code}`), { status: code });

describe("run", () => {
  test("gives the function's result, and the permit back", async () => {
    const api = throttle("api");
    await inPod(async () => {
      expect(await api.run(() => 1)).toBe(1);
      expect(await api.run(async () => "two")).toBe("two");
    });
    expect(inFlightOf(api)).toBe(0);
    expect(outcomesOf(api).success).toBe(2);
  });

  test("gives the permit back however the function fails, with the outcome of what it threw", async () => {
    const api = throttle("api", { preset: "aimd", initial: 4 });
    await inPod(async () => {
      await expect(api.run(() => Promise.reject(status(500)))).rejects.toThrow("status 500");
      await expect(
        api.run(() => {
          throw status(400);
        }),
      ).rejects.toThrow("status 400");
      await expect(api.run(() => Promise.reject(status(429)))).rejects.toThrow("status 429");
    });
    expect(inFlightOf(api)).toBe(0);
    expect(outcomesOf(api)).toMatchObject({ server_error: 1, ignored: 1, throttled: 1 });
    expect(limiterOf(api).snapshot().limit).toBe(2);
  });

  test("classifies a response by its status, though nothing was thrown", async () => {
    const api = throttle("api", { mode: "local", initial: 4 });
    const response = await inPod(() => api.run(() => new Response("slow down", { status: 429 })));
    expect(await response.text()).toBe("slow down");
    expect(outcomesOf(api)).toMatchObject({ throttled: 1, success: 0 });
  });

  test("gives back results whose properties throw when they are read", async () => {
    const api = throttle("api");
    const shy = {
      get headers(): never {
        throw new Error("don't");
      },
    };
    expect(await inPod(() => api.run(() => shy))).toBe(shy);
    expect(outcomesOf(api).success).toBe(1);
  });

  test("goes by the classifier that was declared", async () => {
    const api = throttle("api", {
      classify: (thing) => (thing === "busy" ? "throttled" : undefined),
    });
    await inPod(() => expect(api.run(() => Promise.reject("busy"))).rejects.toBe("busy"));
    expect(outcomesOf(api).throttled).toBe(1);
  });

  test("ends a call that hangs, and gives its permit back though it goes on", async () => {
    const api = throttle("api", { callTimeoutMs: 1_000, graceMs: 200, initial: 1, max: 1 });
    let signal: AbortSignal | undefined;
    const hangs = inPod(() =>
      api.run((call) => {
        signal = call.signal;
        return new Promise(() => {});
      }),
    ).catch((error: unknown) => error);
    const next = inPod(() => api.run(() => "next"));
    await clock.advance(1_000);
    expect(signal?.aborted).toBe(true);
    await clock.advance(200);
    expect(await hangs).toMatchObject({ code: "timeout" });
    expect(await next).toBe("next");
    expect(outcomesOf(api)).toMatchObject({ timeout: 1, success: 1 });
  });

  test("rejects with its own timeout, and not with what the function made of it", async () => {
    const api = throttle("api", { callTimeoutMs: 1_000 });
    const late = inPod(() =>
      api.run(
        ({ signal }) =>
          new Promise((_, reject) =>
            signal.addEventListener("abort", () => reject(new Error("cut"))),
          ),
      ),
    ).catch((error: unknown) => error);
    await clock.advance(1_000);
    expect(await late).toMatchObject({ code: "timeout", cause: new Error("cut") });
    expect(outcomesOf(api).timeout).toBe(1);
  });

  test("aborts the function when its caller has given up, which counts as no failure", async () => {
    const api = throttle("api");
    const stop = new AbortController();
    const stopped = inPod(() =>
      api.run(
        ({ signal }) =>
          new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
        { signal: stop.signal },
      ),
    ).catch((error: unknown) => error);
    await eventLoopTurns();
    stop.abort(new Error("never mind"));
    expect(await stopped).toEqual(new Error("never mind"));
    expect(outcomesOf(api)).toMatchObject({ ignored: 1 });
    expect(inFlightOf(api)).toBe(0);
  });

  test("never begins for a caller that has given up before, also while it waits", async () => {
    const api = throttle("api", { initial: 1, max: 1 });
    let begun = 0;
    const fn = () => begun++;
    await inPod(async () => {
      await expect(api.run(fn, { signal: AbortSignal.abort("no") })).rejects.toBe("no");
      const stop = new AbortController();
      await api.run(async () => {
        const waits = runInThrottleScope({ throttles }, () => api.run(fn, { signal: stop.signal }));
        await eventLoopTurns();
        stop.abort("enough");
        await expect(waits).rejects.toBe("enough");
      });
    });
    expect(begun).toBe(0);
  });

  test("keeps what a call has used, and when its first token came", async () => {
    const api = throttle("api", { bucket: { unit: "tokens", refillPerS: 1_000, burstS: 60 } });
    await inPod(async () => {
      const call = api.run(
        async ({ used, firstToken }) => {
          await sleep(40);
          firstToken();
          await sleep(60);
          used(700);
        },
        { estimate: 2_000 },
      );
      await clock.advance(100);
      await call;
    });
    const { bucket, firstTokenMs, latencyMs } = limiterOf(api).snapshot();
    expect(bucket?.available).toBe(59_400);
    expect(firstTokenMs.p95).toBeGreaterThanOrEqual(40);
    expect(firstTokenMs.p95).toBeLessThan(50);
    expect(latencyMs.p95).toBeGreaterThanOrEqual(100);
  });
});

describe("keys", () => {
  test("have a limit each", async () => {
    const api = throttle("api", { initial: 1, max: 1 });
    await inPod(async () => {
      const slow = api.key("large").run(() => sleep(1_000));
      const same = api.run(() => sleep(0), { key: "large" });
      await api.key("small").run(() => "done");
      await api.run(() => "done");
      expect(limiterOf(api.key("large")).demand()).toMatchObject({ inFlight: 1, waiting: 1 });
      await clock.advance(2_000);
      await Promise.all([slow, same]);
    });
    expect(throttles.all().map(({ key }) => key)).toEqual(["large", "small", ""]);
  });

  test("that are unused are dropped for others, and too many at once are refused", async () => {
    throttles = createThrottleRegistry({ clock, random: seededRandom(1), maxLimiters: 10 });
    const api = throttle("api");
    await inPod(async () => {
      for (let each = 0; each < 25; each++) {
        await clock.advance(1);
        await api.run(() => {}, { key: `user ${each}` });
      }
      expect(throttles.all()).toHaveLength(10);
      expect(throttles.find("api", "user 24")).toBeDefined();
      expect(throttles.find("api", "user 2")).toBeUndefined();

      const busy = Array.from({ length: 10 }, (_, each) =>
        api.run(() => sleep(50), { key: `busy ${each}` }),
      );
      await expect(api.run(() => {}, { key: "one more" })).rejects.toMatchObject({
        code: "throttle_full",
      });
      await clock.advance(50);
      await Promise.all(busy);
    });
  });
});

describe("a declaration", () => {
  test("may be made in several places, if it is the same", async () => {
    await inPod(async () => {
      await throttle("api", { max: 5 }).run(() => {});
      await throttle("api", { max: 5 }).run(() => {});
      await expect(throttle("api", { max: 6 }).run(() => {})).rejects.toThrow("declared twice");
    });
    expect(throttles.all()).toHaveLength(1);
  });

  test.each([
    [{ callTimeout: 5 }, "did you mean `callTimeoutMs`?"],
    [{ mode: "shared" }, "mode must be one of local, leader, hybrid"],
    [{ reserve: { batch: 1 } }, "unknown option `batch`"],
    [{ reserve: { retry: -1 } }, "reserve.retry must be a whole number"],
    [{ maxWaiting: 0.5 }, "maxWaiting must be a whole number"],
    [{ classify: "429" }, "classify must be a function"],
    [{ whenOpen: "drop" }, "whenOpen must be one of wait, fail"],
    [{ min: 0 }, "min must be a whole number"],
  ])("is refused with %o", (options, message) => {
    expect(() => throttle("api", options as object)).toThrow(message);
  });

  test("is refused without a name, or with one that no database keeps", () => {
    expect(() => throttle("")).toThrow("name");
    expect(() => throttle("a\u0000")).toThrow("that a database can store");
    expect(() => throttle("a").key("\udc00")).toThrow("that a database can store");
  });
});
