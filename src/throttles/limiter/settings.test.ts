import { describe, expect, test } from "vitest";
import { maxCallDurationMs } from "./settings.ts";

describe("how long calls of a pod may last that can't be reached any more", () => {
  const settings = { callTimeoutMs: 600_000, graceMs: 5_000 };

  test.each([
    ["as long as any call may, until some have succeeded", 19, 100, 605_000],
    ["ten seconds where all were short", 20, 100, 10_000],
    ["twice its longest", 1_000, 30_000, 60_000],
    ["never longer than any call may", 1_000, 400_000, 605_000],
  ])("is %s", (_, succeeded, longestMs, expected) => {
    expect(maxCallDurationMs(settings, { succeeded, longestMs })).toBe(expected);
  });
});
