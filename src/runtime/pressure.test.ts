import { describe, expect, test } from "vitest";
import { createPressureGauge, lateness } from "./process.ts";

/** Sums of gaps as the gauge keeps them. */
const sums = (...gapsMs: number[]) => ({
  totalMs: gapsMs.reduce((sum, gap) => sum + gap, 0),
  squares: gapsMs.reduce((sum, gap) => sum + gap ** 2, 0),
});
const calm = Array.from({ length: 50 }, () => 20);

describe("how late the event loop is", () => {
  test.each([
    { gaps: "none", seen: [], late: 0 },
    { gaps: "only its own waits", seen: calm, late: 0 },
    { gaps: "one block of 900 ms beside short waits", seen: [20, 20, 20, 20, 20, 900], late: 792 },
    { gaps: "blocks all the time", seen: [300, 300, 300], late: 280 },
    { gaps: "a short block in a calm second", seen: [...calm.slice(5), 100], late: 8 },
  ])("is $late ms with $gaps", ({ seen, late }) => {
    expect(lateness(sums(), sums(...seen))).toBeCloseTo(late, 0);
    // What came before the last look doesn't count.
    expect(lateness(sums(5_000), sums(5_000, ...seen))).toBeCloseTo(late, 0);
  });

  test("is measured in a real process, also where it was blocked from one sample to the next", async () => {
    const gauge = createPressureGauge();
    const block = () => {
      const untilMs = performance.now() + 300;
      while (performance.now() < untilMs);
    };
    const turns = async () => {
      for (let turn = 0; turn < 3; turn++) await new Promise((resolve) => setTimeout(resolve, 30));
    };
    await turns();
    gauge.read();
    block();
    await turns();
    const { lateMs, memory } = gauge.read();
    expect(lateMs).toBeGreaterThan(50);
    expect(memory).toBeGreaterThan(0);
    expect(memory).toBeLessThan(1);
    gauge.stop();
  });
});
