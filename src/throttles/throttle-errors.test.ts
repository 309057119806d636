import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { movableClock } from "../base/contract/movable-clock.ts";
import { seededRandom } from "../base/random.ts";
import { runInThrottleScope } from "./scope.ts";
import { type CallOptions, declarationOf, type Throttle, throttle } from "./throttle.ts";
import { createThrottleRegistry, type ThrottleRegistry } from "./registry.ts";

let throttles: ThrottleRegistry;

beforeEach(() => {
  throttles = createThrottleRegistry({ clock: movableClock(), random: seededRandom(1) });
});
afterEach(() => throttles.close());

const inPod = <Result>(fn: () => Result) => runInThrottleScope({ throttles }, fn);
const seen = (made: Throttle) => throttles.of(declarationOf(made).declared).snapshot();

describe("a call with wrong options is refused, before others come to feel it", () => {
  test.each<[unknown, string]>([
    [{ prioriti: "batch" }, 'throttle "api": unknown option `prioriti`, did you mean `priority`?'],
    [{ priority: "urgent" }, 'throttle "api": priority must be one of control, interactive'],
    [{ estimate: Number.NaN }, 'throttle "api": estimate must be a number from 0'],
    [{ estimate: -1 }, 'throttle "api": estimate must be a number from 0'],
    [{ timeoutMs: 0 }, 'throttle "api": timeoutMs must be a number from 1'],
    [{ maxWaitMs: Infinity }, 'throttle "api": maxWaitMs must be a number from 0'],
    [{ key: 5 }, 'throttle "api": a key must be a string'],
    [{ key: "k".repeat(201) }, 'throttle "api": a key must be a string'],
    [{ key: "k\u0000" }, "that a database can store"],
    [{ key: "\ud800" }, "that a database can store"],
  ])("%j", async (options, message) => {
    const api = throttle("api");
    await inPod(async () => {
      const given = options as CallOptions;
      await expect(api.run(() => 1, given)).rejects.toThrow(message);
      await expect(api.acquire(given)).rejects.toMatchObject({ code: "invalid_option" });
    });
    expect(seen(api).inFlight).toBe(0);
  });

  test("of a fetch or of middleware already when they are made, and by rejecting afterwards", async () => {
    const api = throttle("api");
    expect(() => api.fetchWith({ keys: "a" } as object)).toThrow("did you mean `key`?");
    expect(() => api.middleware({ keys: "a" } as object)).toThrow("did you mean `key`?");
    const fetchIt = api.fetchWith({ key: (url) => new URL(url as string).pathname });
    await inPod(() => expect(fetchIt("no url")).rejects.toThrow("Invalid URL"));
  });
});

describe("permits come back", () => {
  test("though the classifier returns what is none of the outcomes, and the usual table holds", async () => {
    const api = throttle("api", { pinned: 1, classify: () => "slow" as "throttled" });
    const refused = Object.assign(new Error("no"), { status: 429 });
    await inPod(() => expect(api.run(() => Promise.reject(refused))).rejects.toThrow("no"));
    expect(seen(api)).toMatchObject({ inFlight: 0, outcomes: { throttled: 1 } });
  });

  test("though they are released with what is none of the outcomes, which is refused", async () => {
    const api = throttle("api", { pinned: 1 });
    const permit = await inPod(() => api.acquire());
    expect(() => permit.release("succes" as "success")).toThrow("one of success, throttled");
    expect(seen(api)).toMatchObject({ inFlight: 0, outcomes: { ignored: 1 } });
  });
});
