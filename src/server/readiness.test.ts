import { expect, test } from "vitest";
import type { Clock } from "../base/clock.ts";
import { FlotillaError } from "../base/errors.ts";
import { silentLogger } from "../base/log.ts";
import { createReadiness } from "./readiness.ts";

test("many probes at once and within a second share one write", async () => {
  const { ready, clock, pings } = probes();
  expect(await Promise.all([ready(), ready(), ready()])).toEqual(Array(3).fill({ ready: true }));
  clock.advance(999);
  await ready();
  expect(pings.count).toBe(1);
  clock.advance(1);
  await ready();
  expect(pings.count).toBe(2);
});

test("a refused write is the reason, and is forgotten after a second as well", async () => {
  const { ready, clock, pings } = probes();
  pings.answer = () => Promise.reject(new FlotillaError("store_full", "the disk is full"));
  expect(await ready()).toEqual({ ready: false, reason: "store_full" });
  pings.answer = () => Promise.resolve();
  expect(await ready()).toEqual({ ready: false, reason: "store_full" });
  clock.advance(1_000);
  expect(await ready()).toEqual({ ready: true });
});

test("a write that hangs makes it unready, and isn't joined by others", async () => {
  const { ready, clock, pings } = probes();
  pings.answer = () => new Promise(() => {});
  const first = ready();
  clock.advance(5_000);
  expect(await first).toEqual({ ready: false, reason: "timeout" });
  clock.advance(1_000);
  const second = ready();
  clock.advance(5_000);
  expect(await second).toEqual({ ready: false, reason: "timeout" });
  expect(pings.count).toBe(1);
});

function probes() {
  const clock = handClock();
  const pings = { count: 0, answer: () => Promise.resolve() };
  const ready = createReadiness({
    ping: () => {
      pings.count++;
      return pings.answer();
    },
    isStopping: () => false,
    clock,
    log: silentLogger,
  });
  return { ready, clock, pings };
}

function handClock(): Clock & { advance(ms: number): void } {
  let nowMs = 0;
  let timers: { atMs: number; callback: () => void }[] = [];
  return {
    now: () => nowMs,
    monotonic: () => nowMs,
    after(delayMs, callback) {
      const timer = { atMs: nowMs + delayMs, callback };
      timers.push(timer);
      return () => {
        timers = timers.filter((each) => each !== timer);
      };
    },
    advance(ms) {
      nowMs += ms;
      for (const timer of timers.filter((each) => each.atMs <= nowMs)) timer.callback();
      timers = timers.filter((each) => each.atMs > nowMs);
    },
  };
}
