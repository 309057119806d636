import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { encodePulse, maxPulseBytes, parsePulse, type PodPulse } from "./pulse.ts";

const taskId = (at: number) => `01980f6a-3c1e-7a51-8d0c-6d1f1d9a2b${String(at).padStart(2, "0")}`;
const small: PodPulse = {
  claimed: 12,
  ended: { completed: 9, failed: 1 },
  chunks: 40,
  lagMs: 3,
  memoryBytes: 90_000_000,
  held: 2,
  leadsSinceMs: null,
  throttles: [{ name: "openai", key: "", inFlight: 2 }],
  running: [{ taskId: taskId(1), startedAtMs: 1_800_000_000_000 }],
  logs: [{ logId: 3, bytes: 40_000, lagMs: 250 }],
};

describe("a pulse", () => {
  test("is read as it was stored", () => {
    expect(parsePulse(encodePulse(small))).toEqual(small);
    const ofLeader = { ...small, leadsSinceMs: 1_800_000_000_000 };
    expect(parsePulse(encodePulse(ofLeader))).toEqual(ofLeader);
    expect(parsePulse(encodePulse({ ...small, memoryBytes: null }))).toMatchObject({
      memoryBytes: null,
    });
  });

  test("never takes more than 600 bytes, and keeps its totals", () => {
    const text = fc.string({ unit: "grapheme", maxLength: 200 });
    const whole = fc.nat({ max: Number.MAX_SAFE_INTEGER });
    const throttle = fc.record({ name: text, key: text, inFlight: whole });
    const running = fc.record({ taskId: text, startedAtMs: whole });
    const outcomes = ["completed", "retry", "failed", "cancelled", "released", "snoozed", "lost"];
    fc.assert(
      fc.property(fc.array(throttle), fc.array(running), whole, (throttles, tasks, total) => {
        const ended = Object.fromEntries(outcomes.map((outcome) => [outcome, total]));
        const pulse = { ...small, claimed: total, chunks: total, held: total, ended };
        const stored = encodePulse({ ...pulse, throttles, running: tasks });
        expect(Buffer.byteLength(stored)).toBeLessThanOrEqual(maxPulseBytes);
        expect(parsePulse(stored)).toMatchObject({ claimed: total, ended });
      }),
    );
  });

  test("names logs that the database is behind before tasks and throttles", () => {
    const logs = Array.from({ length: 9 }, (_, at) => ({
      logId: at,
      bytes: 268_435_456,
      lagMs: 600_000,
    }));
    const long = { name: "x".repeat(200), key: "", inFlight: 1 };
    const seen = parsePulse(encodePulse({ ...small, throttles: [long, long], logs }))!;
    expect(seen.logs).toEqual(logs.slice(0, 5));
    expect(seen.throttles).toEqual([long]);
  });

  test("names the first throttles and tasks that there is room for", () => {
    const throttles = Array.from({ length: 9 }, (_, at) => ({
      name: `api-${at}`,
      key: "",
      inFlight: 9 - at,
    }));
    const running = Array.from({ length: 9 }, (_, at) => ({
      taskId: taskId(at),
      startedAtMs: 1_800_000_000_000 + at,
    }));
    const seen = parsePulse(encodePulse({ ...small, throttles, running }))!;
    expect(seen.throttles).toEqual(throttles.slice(0, seen.throttles.length));
    expect(seen.running).toEqual(running.slice(0, seen.running.length));
    expect([seen.throttles.length, seen.running.length]).toEqual([5, 5]);
  });

  test.each([
    ["nothing", null],
    ["no JSON", "{"],
    ["no object", "[1]"],
  ])("is none where a row has %s", (_, stored) => {
    expect(parsePulse(stored)).toBeNull();
  });

  test("is read as far as it goes where a row has something else", () => {
    const stored = JSON.stringify({
      claimed: "x",
      logs: [["x"], 2],
      throttles: [1, ["a"]],
      running: {},
      ended: [],
    });
    expect(parsePulse(stored)).toEqual({
      claimed: 0,
      ended: {},
      chunks: 0,
      lagMs: 0,
      memoryBytes: null,
      held: 0,
      leadsSinceMs: null,
      throttles: [],
      running: [],
      logs: [],
    });
  });
});
