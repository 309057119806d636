import { describe, expect, test } from "vitest";
import { z } from "zod";
import { advanceRun } from "./advance.ts";
import { flow } from "../flow.ts";
import type { RunEvent, Now } from "./event.ts";
import { atEnd, type Intent, type Run } from "./run.ts";
import {
  aborted,
  cancelling,
  now,
  order,
  plain,
  returned,
  runAt,
  stored,
  threw,
} from "../contract/sample-flows.ts";

const decide = (run: Run, happened: RunEvent, at: Now = now, machine = order) =>
  advanceRun(machine, run, happened, at);
const types = (decision: ReturnType<typeof decide>) =>
  stored(decision).events.map(({ type }) => type);
const failed: Intent = { type: "failed", error: { code: "aborted", message: "no" } };

describe("a transition", () => {
  test("that returns is stored with what it added, and the claim goes on to the next", () => {
    const run = runAt("reserve", { state: { old: 1, kept: 2 }, failures: 2, deaths: 3 });
    expect(decide(run, returned({ old: 5 }))).toEqual({
      type: "commit",
      run: runAt("cool", { version: 2, state: { old: 5, kept: 2 } }),
      events: [
        {
          type: "complete",
          version: 2,
          transition: "reserve",
          attempt: 3,
          startedAtMs: 9_000,
          set: { old: 5 },
          next: "cool",
        },
      ],
      effects: [],
    });
  });

  test("that adds nothing leaves the state as the same object", () => {
    const run = runAt("reserve", { state: { a: 1 } });
    expect(stored(decide(run, returned())).run.state).toBe(run.state);
  });

  test.each<[string, RunEvent, Partial<Run>, object]>([
    ["a first error", threw(), {}, { type: "retry", untilMs: 11_000 }],
    ["a second error", threw(), { failures: 1 }, { type: "retry", untilMs: 12_000 }],
    ["one that demands more time", threw("x", 9_000), {}, { type: "retry", untilMs: 19_000 }],
    ["one that demands less", threw("x", 1), {}, { type: "retry", untilMs: 11_000 }],
    ["a timeout", { type: "timed_out", timeoutMs: 50 }, {}, { type: "retry", untilMs: 11_000 }],
  ])("is tried again after %s", (_, happened, over, expected) => {
    const run = runAt("reserve", { ...over, state: { a: 1 } });
    const decision = stored(decide(run, happened));
    expect(decision).toMatchObject(expected);
    // A retry doesn't advance it, so pods of its version may have it again.
    expect(decision.run).toEqual({ ...run, failures: run.failures + 1 });
    expect(decision.events).toMatchObject([
      { type: "error", transition: "reserve", attempt: run.failures + 1, next: "reserve" },
    ]);
  });

  test.each<[string, RunEvent, Partial<Run>, string, string]>([
    ["is out of attempts", threw(), { failures: 2 }, "reserve", "handler_failed"],
    ["has one attempt", threw(), {}, "ship", "handler_failed"],
    ["times out at last", { type: "timed_out", timeoutMs: 5 }, {}, "ship", "timeout"],
    ["aborts", aborted, {}, "reserve", "aborted"],
    ["kills pods", { type: "poisoned" }, { deaths: 4 }, "reserve", "pod_died"],
    [
      "never ran, since what it waits for failed",
      { type: "unmet", error: { code: "dependency_failed", message: "" } },
      {},
      "reserve",
      "dependency_failed",
    ],
  ])("that %s leads the run to its finalizers", (_, happened, over, cursor, code) => {
    const decision = stored(decide(runAt(cursor, { ...over, state: { a: 1 } }), happened));
    expect(decision.type).toBe("commit");
    expect(decision.run).toMatchObject({
      version: 2,
      cursor: "release",
      state: { a: 1 },
      failures: 0,
      deaths: 0,
      intent: { type: "failed", error: { code } },
    });
    expect(decision.events).toMatchObject([
      { type: "error", transition: cursor, error: { code }, retryAtMs: null, next: "release" },
    ]);
  });

  test("that is unrecoverable records by whom", () => {
    const error = { code: "aborted", message: "no such image", by: "user" } as const;
    const thrown = { type: "fail", error } as const;
    const decision = stored(decide(runAt("reserve"), { type: "threw", thrown }));
    expect(decision.run.intent).toEqual({ type: "failed", error });
  });

  test("that throws cancel ends the run as cancelled, with its reason", () => {
    const thrown = { type: "cancel", reason: "sold out" } as const;
    const decision = stored(decide(runAt("reserve"), { type: "threw", thrown }));
    expect(decision.run).toMatchObject({
      cursor: "release",
      intent: { type: "cancelled", reason: "sold out" },
    });
    expect(types(decision)).toEqual(["cancel"]);
  });

  test("that snoozes waits without its being an attempt", () => {
    const run = runAt("reserve", { failures: 1 });
    const thrown = { type: "snooze", delayMs: 700, message: "not yet" } as const;
    const decision = decide(run, { type: "threw", thrown });
    expect(decision).toMatchObject({ type: "park", untilMs: 10_700, run });
    expect(stored(decision).events).toMatchObject([{ type: "park", message: "not yet" }]);
  });

  test("that hands off ends the run well, without those behind it but with its finalizers", () => {
    const run = runAt("reserve", { state: { a: 1 } });
    const decision = stored(decide(run, { type: "handed_off", output: { device: "d1" } }));
    expect(decision.run).toMatchObject({
      cursor: "release",
      state: { a: 1 },
      intent: { type: "completed", output: { device: "d1" } },
    });
    expect(types(decision)).toEqual(["complete"]);
  });

  test("may hand off nothing, which isn't the same as the state", () => {
    const decision = decide(runAt("one"), { type: "handed_off", output: null }, now, plain);
    expect(decision).toMatchObject({ type: "finish", status: "completed", result: null });
  });

  test("that is interrupted is given back uncounted, with nothing to store", () => {
    expect(decide(runAt("reserve", { failures: 1 }), { type: "interrupted" })).toEqual({
      type: "release",
    });
  });

  test("can't have happened to it what only happens to others", () => {
    expect(() => decide(runAt("reserve"), { type: "woken" })).toThrow("can't happen");
    expect(() => decide(runAt("cool"), returned())).toThrow("can't happen");
    expect(() => decide(runAt("gone"), returned())).toThrow("can't happen");
    expect(() => decide(runAt("reserve"), { type: "finalized" })).toThrow("can't happen");
  });
});

describe("the last transition", () => {
  test("finishes the run in the same write where there are no finalizers", () => {
    const decision = decide(runAt("two", { state: { a: 1 } }), returned({ b: 2 }), now, plain);
    expect(decision).toMatchObject({
      type: "finish",
      status: "completed",
      result: { a: 1, b: 2 },
      error: null,
      run: { cursor: null, state: { a: 1, b: 2 }, intent: { type: "completed" } },
    });
    expect(types(decision)).toEqual(["complete", "finish"]);
  });

  test("brings what the output's schema made of the state", () => {
    const happened = { ...returned({ b: 2 }), output: "five" } as const;
    const decision = decide(runAt("two"), happened, now, plain);
    expect(decision).toMatchObject({ type: "finish", result: "five" });
  });

  const waits = flow("waits", { version: 1, output: z.object({ ok: z.boolean() }), attempts: 2 })
    .signal("ok", { schema: z.boolean() })
    .end();

  test("waits at the end where the output has yet to be checked, and then finishes", () => {
    const seen = { type: "signal_seen", signal: { signalId: "s1", payload: true } } as const;
    const first = stored(decide(runAt("ok"), seen, now, waits));
    expect(first).toMatchObject({ type: "commit", run: { cursor: atEnd, intent: null } });
    const second = decide(first.run, { type: "concluded", output: { ok: true } }, now, waits);
    expect(second).toMatchObject({ type: "finish", status: "completed", result: { ok: true } });
  });

  test("fails the run where the schema refuses the state, and is checked again where it threw", () => {
    const thrown = { type: "retry", retryAfterMs: 0 } as const;
    const refused = { code: "invalid_output", message: "no" };
    const run = runAt(atEnd);
    expect(
      decide(run, { type: "threw", thrown: { ...thrown, error: refused } }, now, waits),
    ).toMatchObject({ type: "finish", status: "failed", error: refused });
    expect(decide(run, threw(), now, waits)).toMatchObject({ type: "retry", run: { failures: 1 } });
    expect(decide({ ...run, failures: 1 }, threw(), now, waits)).toMatchObject({ type: "finish" });
    expect(decide(run, { type: "cancel_requested", reason: null }, cancelling, waits)).toEqual({
      type: "ignore",
      why: "ending",
    });
  });
});

describe("a cancel", () => {
  const asked: RunEvent = { type: "cancel_requested", reason: "changed my mind" };

  test.each(["reserve", "cool", "approval", "ship"])(
    "leads a run at %s to its finalizers",
    (at) => {
      const decision = stored(decide(runAt(at, { failures: 1 }), asked));
      expect(decision.type).toBe("commit");
      expect(decision.run).toMatchObject({
        cursor: "release",
        failures: 0,
        waiting: null,
        intent: { type: "cancelled", reason: "changed my mind" },
      });
      expect(decision.events).toMatchObject([{ type: "cancel", transition: at }]);
      expect(decision.effects).toEqual([]);
    },
  );

  test("of a parent that waits is passed on to its children, in the same write", () => {
    const run = runAt("parcels", { waiting: { for: "children", sinceMs: 1 } });
    const decision = stored(decide(run, asked));
    expect(decision.effects).toEqual([{ type: "cancel_children", transition: "parcels" }]);
    expect(decision.run).toMatchObject({ cursor: "release", waiting: null });
  });

  test("that comes while a transition runs counts after it, and keeps what it returned", () => {
    const decision = stored(decide(runAt("reserve"), returned({ a: 1 }), cancelling));
    expect(types(decision)).toEqual(["complete", "cancel"]);
    expect(decision.run).toMatchObject({
      cursor: "release",
      state: { a: 1 },
      intent: { type: "cancelled" },
    });
  });

  test.each([threw(), aborted, { type: "timed_out", timeoutMs: 5 } as const])(
    "is why an aborted transition threw: %j",
    (happened) => {
      const decision = stored(decide(runAt("reserve"), happened, cancelling));
      expect(decision.run.intent).toEqual({ type: "cancelled", reason: null });
    },
  );

  test("comes too late for a run whose last transition is done, or that hands off", () => {
    const last = stored(decide(runAt("ship"), returned(), cancelling));
    expect(last.run).toMatchObject({ cursor: "release", intent: { type: "completed" } });
    const handed = decide(runAt("reserve"), { type: "handed_off", output: 1 }, cancelling);
    expect(stored(handed).run.intent).toEqual({ type: "completed", output: 1 });
  });

  test("changes nothing while finalizers run", () => {
    const run = runAt("release", { intent: failed });
    expect(decide(run, asked)).toEqual({ type: "ignore", why: "ending" });
    expect(stored(decide(run, { type: "finalized" }, cancelling)).run.intent).toEqual(failed);
    expect(stored(decide(run, threw(), cancelling))).toMatchObject({ type: "retry" });
  });

  test("finishes a run without finalizers at once", () => {
    const decision = decide(runAt("one"), asked, now, plain);
    expect(decision).toMatchObject({
      type: "finish",
      status: "cancelled",
      result: null,
      error: { code: "cancelled", message: "changed my mind" },
    });
    expect(types(decision)).toEqual(["cancel", "finish"]);
  });
});

describe("a finalizer", () => {
  test("that is done gives way to the next, and the last one finishes the run", () => {
    const first = stored(decide(runAt("release", { intent: failed }), { type: "finalized" }));
    expect(first).toMatchObject({ type: "commit", run: { cursor: "report", intent: failed } });
    const second = decide(first.run, { type: "finalized" });
    expect(second).toMatchObject({
      type: "finish",
      status: "failed",
      error: { code: "aborted" },
      run: { cursor: null, intent: failed },
    });
  });

  test("is tried as often as its options allow", () => {
    const run = runAt("release", { intent: failed });
    expect(decide(run, threw())).toMatchObject({ type: "retry", run: { failures: 1 } });
  });

  test.each<[string, RunEvent, Partial<Run>]>([
    ["is out of attempts", threw(), { failures: 1 }],
    ["aborts", aborted, {}],
    ["throws cancel", { type: "threw", thrown: { type: "cancel", reason: "x" } }, {}],
    ["times out at last", { type: "timed_out", timeoutMs: 5 }, { failures: 1 }],
    ["kills pods", { type: "poisoned" }, { deaths: 4 }],
  ])("that %s is noted, and the next runs; the ending stays", (_, happened, over) => {
    const intent: Intent = { type: "completed", output: 5 };
    const decision = stored(decide(runAt("release", { intent, ...over }), happened));
    expect(decision.type).toBe("commit");
    expect(decision.run).toMatchObject({ cursor: "report", failures: 0, deaths: 0, intent });
    expect(decision.events).toMatchObject([
      { type: "error", transition: "release", retryAtMs: null, next: "report" },
    ]);
  });

  test("can't hand off", () => {
    const run = runAt("release", { intent: failed });
    expect(() => decide(run, { type: "handed_off", output: 1 })).toThrow("can't happen");
  });
});

describe("a run that has ended", () => {
  test.each<RunEvent>([
    returned({ a: 1 }),
    { type: "handed_off", output: 1 },
    threw(),
    { type: "cancel_requested", reason: null },
    { type: "interrupted" },
    { type: "finalized" },
    { type: "woken" },
  ])("stays as it is, whatever happens: %j", (happened) => {
    const run = runAt(null, { intent: failed });
    expect(decide(run, happened)).toEqual({ type: "ignore", why: "ended" });
  });
});
