import { expect, test } from "vitest";
import { createTestLimiter } from "../../throttles/contract/limiter.ts";
import { throttle } from "../../throttles/throttle.ts";
import { task } from "../task.ts";
import { demandsOf } from "./throttle-demand.ts";
import { createDeferred } from "./throttle-gate.ts";

const api = throttle("api");
const handler = task("ask", { throttle: { use: api, key: () => "a" } }, () => {});
const line = demandsOf([handler]).byInput[0]!;

test("tasks that find no permit come back one after the other, though it isn't known yet how long calls take", () => {
  const { limiter, clock } = createTestLimiter({}, 1);
  limiter.tryAcquire();
  const returned = createDeferred(clock);
  const delaysMs = Array.from({ length: 1_000 }, () => returned.defer(limiter, line, {}));
  const within = (ms: number) => delaysMs.filter((delayMs) => delayMs <= ms).length;
  expect(delaysMs[0]).toBe(500);
  expect(within(1_000)).toBeLessThan(50);
  expect(within(5_000)).toBeLessThan(250);
  expect(within(10_000)).toBe(1_000);
  expect(returned.count(limiter)).toBe(1_000);
});

test("tasks that find no permit are put off for as long as those before them take, where that is known", async () => {
  const { limiter, clock } = createTestLimiter({}, 1);
  const ended = limiter.tryAcquire()!;
  await clock.advance(2_000);
  ended.release("success");
  limiter.tryAcquire();
  const returned = createDeferred(clock);
  expect(returned.defer(limiter, line, {})).toBe(2_000);
  limiter.setBlockedTasks(returned.count(limiter));
  expect(returned.defer(limiter, line, {})).toBe(4_000);
  await clock.advance(6_000);
  expect(returned.count(limiter)).toBe(0);
});
