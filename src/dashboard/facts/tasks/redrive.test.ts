import { describe, expect, test } from "vitest";
import { redriveIn, redriveSteps } from "./redrive.ts";

const none = {
  taken: 0,
  succeeded: 0,
  failed: 0,
  failedOtherwise: 0,
  gone: 0,
  open: 0,
  maxStep: 256,
};

describe("the drawing of a redrive", () => {
  test("has one task first, then twice as many", () => {
    expect(redriveSteps(none)).toEqual({ steps: [], hidden: 0 });
    expect(redriveSteps({ ...none, taken: 1, open: 1 }).steps).toEqual([["open"]]);
    expect(redriveSteps({ ...none, taken: 7, succeeded: 3, open: 4 }).steps).toEqual([
      ["good"],
      ["good", "good"],
      ["open", "open", "open", "open"],
    ]);
  });

  test("ends with what failed, where it halted", () => {
    const halted = { ...none, taken: 3, succeeded: 1, gone: 1, failed: 1 };
    expect(redriveSteps(halted).steps).toEqual([["good"], ["gone", "wrong"]]);
    const { steps } = redriveSteps({ ...none, taken: 1, failedOtherwise: 1 });
    expect(steps).toEqual([["wrong"]]);
  });

  test("keeps to its largest step, and shows the last tasks of many", () => {
    const { steps, hidden } = redriveSteps({ ...none, taken: 10, succeeded: 10, maxStep: 2 });
    expect(steps.map((step) => step.length)).toEqual([1, 2, 2, 2, 2, 1]);
    expect(hidden).toBe(0);
    const many = redriveSteps({ ...none, taken: 100_000, succeeded: 99_999, failed: 1 });
    expect(many.steps.flat()).toHaveLength(63);
    expect(many.steps.flat().at(-1)).toBe("wrong");
    expect(many.hidden).toBe(100_000 - 63);
  });

  test("is found in the events of a task that it has started over", () => {
    const event = (seq: number, type: string, detail: unknown) =>
      ({ seq, atMs: seq, type, attempt: null, podId: null, detail }) as never;
    expect(redriveIn([])).toBeUndefined();
    expect(redriveIn([event(1, "failed", {}), event(2, "redriven", "hidden")])).toBeUndefined();
    const twice = [
      event(1, "redriven", { redriveId: "one", step: 1 }),
      event(2, "failed", { redriveId: "other" }),
      event(3, "redriven", { redriveId: "two", step: 1 }),
    ];
    expect(redriveIn(twice)).toBe("two");
  });
});
