import { describe, expect, test } from "vitest";
import type { RunFacts } from "../../asks/flows.ts";
import { possibleRunActs, runRemark } from "./run-remark.ts";

const run = (more: Partial<RunFacts> = {}) =>
  ({
    status: "open",
    version: 2,
    attempt: 1,
    doing: { type: "ready" },
    noWorker: false,
    paused: false,
    intent: null,
    error: null,
    cancelRequested: false,
    ...more,
  }) as RunFacts;
const text = (more: Partial<RunFacts>) => runRemark(run(more), 10_000)?.text;
const aside = { type: "set_aside", reason: "unreadable", message: "no such part", byVersion: 2 };

describe("what a run does", () => {
  test("is said with until when", () => {
    expect(text({})).toBe("waits for a pod");
    expect(text({ doing: { type: "running", podId: "p", sinceMs: 0 }, attempt: 3 })).toBe(
      "runs, attempt 3",
    );
    expect(text({ doing: { type: "sleeping", sinceMs: 0, untilMs: 70_000 } })).toBe(
      "sleeps for 1 min more",
    );
    const signal = { type: "waiting_for_signal", name: "go", sinceMs: 0 } as const;
    expect(text({ doing: { ...signal, untilMs: null } })).toBe("waits for the signal go");
    expect(text({ doing: { ...signal, untilMs: 70_000 } })).toBe(
      "waits for the signal go, at most 1 min more",
    );
    const error = { code: "x", message: "no paper" } as RunFacts["error"];
    expect(text({ doing: { type: "retrying", atMs: 15_000 }, error })).toBe(
      "retries in 5.0 s after no paper",
    );
    expect(text({ intent: "failed", doing: { type: "ready" } })).toBe(
      "waits for a pod, ending as failed",
    );
    expect(text({ cancelRequested: true })).toBe("waits for a pod, is asked to stop");
  });

  test("is wrong where no pod can go on with it", () => {
    expect(runRemark(run({ doing: aside as RunFacts["doing"] }), 0)).toEqual({
      text: "set aside: no such part",
      isWrong: true,
    });
    expect(text({ noWorker: true })).toBe("no live pod has version 2 or a later one");
    expect(text({ noWorker: true, version: 0 })).toBe("no live pod has its flow");
    expect(text({ status: "completed", doing: null })).toBeUndefined();
  });

  test("decides what may be done to it", () => {
    expect(possibleRunActs(run())).toEqual({
      signal: true,
      resume: false,
      resumeAs: false,
      cancel: true,
    });
    expect(possibleRunActs(run({ doing: aside as RunFacts["doing"] }))).toMatchObject({
      resume: true,
      resumeAs: true,
    });
    expect(possibleRunActs(run({ noWorker: true }))).toMatchObject({ resumeAs: true });
    expect(possibleRunActs(run({ status: "failed", doing: null }))).toEqual({
      signal: false,
      resume: true,
      resumeAs: false,
      cancel: false,
    });
    expect(possibleRunActs(run({ intent: "cancelled" })).cancel).toBe(false);
  });
});
