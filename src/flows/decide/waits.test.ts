import { describe, expect, test } from "vitest";
import { advanceRun } from "./advance.ts";
import { flow } from "../flow.ts";
import type { ChildState, RunEvent, Now } from "./event.ts";
import type { Run } from "./run.ts";
import { cancelling, now, order, runAt, stored } from "../contract/sample-flows.ts";
import { findNextStep } from "./next-step.ts";

const decide = (run: Run, happened: RunEvent, at: Now = now, machine = order) =>
  advanceRun(machine, run, happened, at);
const at = (nowMs: number): Now => ({ ...now, nowMs });

describe("a sleep", () => {
  const asleep = runAt("cool", { waiting: { for: "sleep", sinceMs: 8_000, untilMs: 15_000 } });

  test("parks the run until its time", () => {
    expect(decide(runAt("cool"), { type: "sleep_requested", ms: 5_000 })).toMatchObject({
      type: "park",
      untilMs: 15_000,
      run: { version: 2, waiting: { for: "sleep", sinceMs: 9_000, untilMs: 15_000 } },
      events: [{ type: "park", transition: "cool", untilMs: 15_000 }],
    });
  });

  test("is over at its time and not before, whatever wakes it", () => {
    const early = findNextStep(order, asleep, at(14_999));
    expect(early).toMatchObject({ type: "decided", decision: { type: "park", untilMs: 15_000 } });
    // A wait that goes on is noted once.
    expect(early).toMatchObject({ decision: { events: [], run: asleep } });
    expect(findNextStep(order, asleep, at(15_000))).toMatchObject({
      type: "decided",
      decision: {
        type: "commit",
        run: { cursor: "approval", waiting: null },
        // It began when it was parked, and not when it was last read.
        events: [{ type: "complete", startedAtMs: 8_000 }],
      },
    });
  });

  test("of no time at all parks nothing", () => {
    const decision = decide(runAt("cool"), { type: "sleep_requested", ms: 0 });
    expect(decision).toMatchObject({ type: "commit", run: { cursor: "approval" } });
  });

  test("isn't begun, and is cut short, by a cancel", () => {
    const asked = decide(runAt("cool"), { type: "sleep_requested", ms: 5_000 }, cancelling);
    expect(asked).toMatchObject({ type: "commit", run: { intent: { type: "cancelled" } } });
    expect(findNextStep(order, asleep, cancelling)).toMatchObject({
      decision: { type: "commit", run: { cursor: "release", waiting: null } },
    });
  });
});

describe("a signal", () => {
  const none: RunEvent = { type: "signal_seen", signal: null };
  const waiting = { for: "signal", sinceMs: 10_000, untilMs: 70_000 } as const;

  test("that isn't there yet parks the run until it comes or its time is over", () => {
    expect(decide(runAt("approval"), none)).toMatchObject({
      type: "park",
      untilMs: 70_000,
      run: { cursor: "approval", waiting, version: 2 },
    });
  });

  test("is waited for no longer because the run is read again", () => {
    const decision = decide(runAt("approval", { waiting }), none, at(60_000));
    expect(decision).toMatchObject({ type: "park", untilMs: 70_000, events: [] });
  });

  test("lands in the state under its name, and is taken in the same write", () => {
    const signal = { signalId: "s1", payload: { by: "ada" } };
    const decision = decide(runAt("approval", { waiting }), { type: "signal_seen", signal });
    expect(decision).toMatchObject({
      type: "commit",
      run: { cursor: "parcels", state: { approval: { by: "ada" } }, waiting: null },
      events: [{ type: "complete", set: { approval: { by: "ada" } } }],
      effects: [{ type: "take_signal", signalId: "s1" }],
    });
  });

  test("that comes in the moment of its timeout still counts", () => {
    const signal = { signalId: "s1", payload: 1 };
    const run = runAt("approval", { waiting });
    const decision = decide(run, { type: "signal_seen", signal }, at(70_000));
    expect(decision).toMatchObject({ type: "commit", run: { state: { approval: 1 } } });
  });

  test("that never comes fails the run, or goes on with a value", () => {
    const run = runAt("approval", { waiting });
    expect(decide(run, none, at(70_000))).toMatchObject({
      type: "commit",
      run: { cursor: "release", intent: { type: "failed", error: { code: "timeout" } } },
    });
    const otherwise = flow("otherwise", { version: 1 })
      .signal("approval", { timeoutMs: 60_000, onTimeout: { value: { by: "nobody" } } })
      .end();
    expect(decide(run, none, at(70_000), otherwise)).toMatchObject({
      type: "finish",
      result: { approval: { by: "nobody" } },
    });
  });

  test("without a time is waited for until it comes", () => {
    const patient = flow("patient", { version: 1 }).signal("approval").end();
    const decision = decide(runAt("approval"), none, now, patient);
    expect(decision).toMatchObject({ type: "park", untilMs: null });
    const later = decide(stored(decision).run, none, at(1e12), patient);
    expect(later).toMatchObject({ type: "park", untilMs: null });
  });

  test("that its schema refuses is dropped visibly, the claim kept, and the time not begun anew", () => {
    const refused = { type: "signal_refused", signalId: "s1", message: "by: required" } as const;
    const first = decide(runAt("approval"), refused);
    expect(first).toMatchObject({
      type: "commit",
      run: { cursor: "approval", waiting, failures: 0 },
      events: [{ type: "park", message: "by: required" }],
      effects: [{ type: "take_signal", signalId: "s1" }],
    });
    const later = decide(stored(first).run, refused, at(50_000));
    expect(later).toMatchObject({ type: "commit", run: { waiting } });
  });
});

describe("children", () => {
  const child = { flow: { name: "parcel" }, input: 1, options: {} };
  const waiting = { for: "children", sinceMs: 9_000 } as const;
  const parent = runAt("parcels", { waiting });
  const good: ChildState = { taskId: "c1", name: "parcel", status: "completed", result: 1 };
  const bad: ChildState = {
    taskId: "c2",
    name: "parcel",
    status: "failed",
    error: { code: "aborted", message: "lost" },
  };
  const cancelled: ChildState = { taskId: "c3", name: "parcel", status: "cancelled" };
  const open: ChildState = { taskId: "c4", name: "parcel", status: "open" };
  const gone: ChildState = { taskId: "c5", name: "parcel", status: "gone" };
  const see = (...children: ChildState[]) =>
    decide(parent, { type: "children_seen", startedBy: "kids", children });

  test("are started in the write that parks their parent", () => {
    const asked: RunEvent = { type: "children_requested", children: [child, child] };
    expect(decide(runAt("parcels"), asked)).toMatchObject({
      type: "park",
      untilMs: null,
      run: { cursor: "parcels", waiting },
      effects: [{ type: "start_children", transition: "parcels", children: [child, child] }],
    });
    const late = stored(decide(runAt("parcels"), asked, cancelling));
    expect(late).toMatchObject({ type: "commit", run: { cursor: "release" }, effects: [] });
  });

  test("aren't started again while they run", () => {
    expect(findNextStep(order, runAt("parcels"), now).type).toBe("call");
    expect(findNextStep(order, parent, now).type).toBe("see_children");
  });

  test("that are none need no wait", () => {
    const asked: RunEvent = { type: "children_requested", children: [] };
    expect(decide(runAt("parcels"), asked)).toMatchObject({
      type: "commit",
      run: { cursor: "ship", state: { parcels: [] } },
      effects: [],
    });
  });

  test("are waited for until the last has ended, also where one has failed", () => {
    expect(see(good, open)).toMatchObject({ type: "park", untilMs: null, events: [] });
    expect(see(bad, open)).toMatchObject({ type: "park", run: parent });
  });

  test("give their outputs in their order", () => {
    expect(see(good, { ...good, result: "two" })).toMatchObject({
      type: "commit",
      run: { cursor: "ship", state: { parcels: [1, "two"] }, waiting: null },
    });
  });

  test.each([
    [bad, "child run c2 (parcel) has failed: lost"],
    [cancelled, "child run c3 (parcel) was cancelled"],
    [gone, "child run c5 (parcel) was deleted"],
  ])("fail their parent unless they complete: %j", (culprit, message) => {
    expect(see(good, culprit)).toMatchObject({
      type: "commit",
      run: {
        cursor: "release",
        intent: {
          type: "failed",
          error: { code: "dependency_failed", message, taskId: culprit.taskId },
        },
      },
    });
  });

  test("that may fail are reported one by one", () => {
    const kept = flow("kept", { version: 1 })
      .children("parcels", { failures: "keep" }, () => [])
      .end();
    const children = [good, bad, cancelled, gone];
    expect(
      decide(parent, { type: "children_seen", startedBy: "kids", children }, now, kept),
    ).toMatchObject({
      type: "finish",
      result: {
        parcels: [
          { status: "completed", output: 1 },
          { status: "failed", error: { message: "lost" } },
          { status: "cancelled" },
          { status: "failed", error: { code: "dependency_failed" } },
        ],
      },
    });
  });
});
