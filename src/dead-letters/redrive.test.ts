import { describe, expect, test } from "vitest";
import { countStep, decideRedrive, type StepCounts, type StoredRedrive } from "./redrive.ts";

const redrive: StoredRedrive = {
  redriveId: "r",
  selection: { all: true },
  state: "running",
  reason: null,
  revision: 3,
  step: 3,
  stepSize: 4,
  maxStep: 256,
  fromStart: false,
  forgottenSteps: 0,
  stepTaken: 4,
  taken: 7,
  succeeded: 3,
  failed: 0,
  failedOtherwise: 0,
  gone: 0,
  remaining: 20,
  createdAtMs: 1,
  updatedAtMs: 1,
};
const calm: StepCounts = {
  taken: 4,
  open: 0,
  succeeded: 4,
  failed: 0,
  failedOtherwise: 0,
  gone: 0,
};

describe("a redrive", () => {
  test.each([
    ["begins with one", { step: 0, stepSize: 0, stepTaken: 0 }, { taken: 0 }, 1],
    ["goes on with twice as many after a step that ended well", {}, {}, 8],
    ["repeats a step that took nothing", {}, { taken: 0 }, 4],
    ["takes no more at once than it may", { stepSize: 200, maxStep: 256 }, {}, 256],
    ["never more than one with that option", { step: 0, maxStep: 1 }, {}, 1],
    ["bears few other errors", { stepSize: 16 }, { taken: 16, failedOtherwise: 3 }, 32],
    ["doesn't mind cancelled tasks", {}, { succeeded: 0, gone: 4 }, 8],
  ])("%s", (_, row, step, size) => {
    expect(decideRedrive({ ...redrive, ...row }, { ...calm, ...step })).toEqual({
      type: "take",
      size,
    });
  });

  test("waits for every task of a step", () => {
    expect(decideRedrive(redrive, { ...calm, open: 1, succeeded: 3 })).toEqual({ type: "wait" });
  });

  test("stops as soon as the error comes back, whatever still runs", () => {
    const again = { taskId: "t", message: "boom" };
    expect(decideRedrive(redrive, { ...calm, open: 3, succeeded: 0, failed: 1, again })).toEqual({
      type: "stop",
      reason: { code: "same_error", message: "the error came back: boom", taskId: "t" },
    });
  });

  test.each([
    [1, 1],
    [4, 1],
    [5, 2],
    [100, 21],
  ])("stops when of %d tasks %d fail with another error", (taken, failedOtherwise) => {
    const step = { ...calm, taken, failedOtherwise, otherwise: { taskId: "t", message: "boom" } };
    expect(decideRedrive(redrive, step)).toMatchObject({
      type: "stop",
      reason: { code: "other_errors", taskId: "t" },
    });
    if (taken === 1) return;
    const fewer = { ...step, failedOtherwise: failedOtherwise - 1 };
    expect(decideRedrive(redrive, fewer)).toMatchObject({ type: "take" });
  });

  test("that stops waits for what it has taken, then reports how it ended", () => {
    const stopping = { ...redrive, state: "stopping" } as const;
    const reason = (code: "same_error" | "cancelled") => ({ reason: { code, message: "" } });
    const open = { ...calm, failed: 2, open: 1 };
    expect(decideRedrive({ ...stopping, ...reason("same_error") }, open)).toEqual({ type: "wait" });
    expect(decideRedrive({ ...stopping, ...reason("same_error") }, calm)).toEqual({
      type: "end",
      state: "stopped",
    });
    expect(decideRedrive({ ...stopping, ...reason("cancelled") }, calm)).toEqual({
      type: "end",
      state: "cancelled",
    });
  });

  test("counts what became of its tasks, and those that are gone", () => {
    const failed = (taskId: string, before: string | undefined, now: string) =>
      ({ taskId, status: "failed", now, message: `${now}!`, ...(before && { before }) }) as const;
    const tasks = [
      { taskId: "1", status: "pending" },
      { taskId: "2", status: "claimed" },
      { taskId: "3", status: "completed" },
      { taskId: "4", status: "cancelled" },
      failed("5", "a", "b"),
      failed("6", "a", "a"),
      failed("7", undefined, "a"),
    ];
    expect(countStep(9, tasks)).toEqual({
      taken: 9,
      open: 2,
      succeeded: 1,
      failed: 1,
      failedOtherwise: 2,
      gone: 3,
      again: { taskId: "6", message: "a!" },
      otherwise: { taskId: "5", message: "b!" },
    });
  });
});
