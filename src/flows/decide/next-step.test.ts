import { describe, expect, test } from "vitest";
import { atEnd, type Intent, type Run } from "./run.ts";
import { cancelling, now, order, plain, runAt } from "../contract/sample-flows.ts";
import { findNextStep } from "./next-step.ts";

const intent: Intent = { type: "completed", output: 5 };

describe("what a pod does next with a run", () => {
  test("is to call the function at the cursor, with its attempt", () => {
    expect(findNextStep(order, runAt("reserve", { failures: 2 }), now)).toEqual({
      type: "call",
      part: order.parts[0],
      attempt: 3,
      outcome: null,
    });
  });

  test("is to call a finalizer, with the ending, and no cancel prevents that", () => {
    const expected = { type: "call", part: order.finalizers[0], attempt: 1, outcome: intent };
    expect(findNextStep(order, runAt("release", { intent }), now)).toEqual(expected);
    expect(findNextStep(order, runAt("release", { intent }), cancelling)).toEqual(expected);
    const whole = runAt("release", { intent: { type: "completed" }, state: { a: 1 } });
    expect(findNextStep(order, whole, now)).toMatchObject({
      outcome: { type: "completed", output: { a: 1 } },
    });
  });

  test("is to read a signal, and to check the state against the output at the end", () => {
    expect(findNextStep(order, runAt("approval"), now).type).toBe("see_signal");
    expect(findNextStep(order, runAt(atEnd), now)).toEqual({ type: "conclude" });
    expect(findNextStep(order, runAt(atEnd), cancelling)).toEqual({ type: "conclude" });
  });

  test.each<[string, Run, object]>([
    ["leads to the finalizers", runAt("reserve", { deaths: 4 }), { cursor: "release" }],
    ["leads there from the end too", runAt(atEnd, { deaths: 4 }), { cursor: "release" }],
    [
      "gives way to the next finalizer",
      runAt("release", { intent, deaths: 4 }),
      { cursor: "report" },
    ],
  ])("what has killed four pods isn't run again, and %s", (_, run, expected) => {
    expect(findNextStep(order, run, now)).toMatchObject({
      type: "decided",
      decision: { type: "commit", run: { ...expected, deaths: 0 } },
    });
    expect(findNextStep(order, { ...run, deaths: 3 }, now).type).not.toBe("decided");
  });

  test.each(["reserve", "cool", "approval", "parcels"])("is to cancel at %s", (cursor) => {
    expect(findNextStep(order, runAt(cursor, { deaths: 4 }), cancelling)).toMatchObject({
      type: "decided",
      decision: { type: "commit", run: { cursor: "release", intent: { type: "cancelled" } } },
    });
  });

  test("is to finish where a later version has no finalizers left", () => {
    expect(findNextStep(plain, runAt(atEnd, { intent }), now)).toMatchObject({
      type: "decided",
      decision: { type: "finish", status: "completed", result: 5 },
    });
  });

  test("is nothing where it has ended", () => {
    expect(findNextStep(order, runAt(null, { intent }), cancelling)).toEqual({
      type: "decided",
      decision: { type: "ignore", why: "ended" },
    });
  });
});
