import { expect, test } from "vitest";
import { limiterUnderTest } from "../../throttles/contract/limiter.ts";
import { throttle } from "../../throttles/throttle.ts";
import { task } from "../task.ts";
import { linesOf } from "./throttle-demand.ts";
import { createReturned } from "./throttle-gate.ts";

const api = throttle("api");
const handler = task("ask", { throttle: { use: api, key: () => "a" } }, () => {});
const line = linesOf([handler]).byInput[0]!;

test("tasks that find no permit come back one after the other, though nobody knows yet how long calls take", () => {
  const { limiter, clock } = limiterUnderTest({}, 1);
  limiter.tryAcquire();
  const returned = createReturned(clock);
  const delaysMs = Array.from({ length: 1_000 }, () => returned.giveBack(limiter, line, {}));
  const within = (ms: number) => delaysMs.filter((delayMs) => delayMs <= ms).length;
  expect(delaysMs[0]).toBe(500);
  expect(within(1_000)).toBeLessThan(50);
  expect(within(5_000)).toBeLessThan(250);
  expect(within(10_000)).toBe(1_000);
  expect(returned.of(limiter)).toBe(1_000);
});

test("tasks that find no permit are put off for as long as those before them take, where that is known", async () => {
  const { limiter, clock } = limiterUnderTest({}, 1);
  const ended = limiter.tryAcquire()!;
  await clock.advance(2_000);
  ended.release("success");
  limiter.tryAcquire();
  const returned = createReturned(clock);
  expect(returned.giveBack(limiter, line, {})).toBe(2_000);
  limiter.behindGate(returned.of(limiter));
  expect(returned.giveBack(limiter, line, {})).toBe(4_000);
  await clock.advance(6_000);
  expect(returned.of(limiter)).toBe(0);
});
