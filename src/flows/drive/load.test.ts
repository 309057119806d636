import { describe, expect, test } from "vitest";
import { FlotillaError } from "../../base/errors.ts";
import { advanceRun } from "../decide/advance.ts";
import { flow } from "../flow.ts";
import type { Machine } from "../machine.ts";
import { atEnd, type Intent, type Run } from "../decide/run.ts";
import { now, order, returned, runAt, stored, threw } from "../contract/sample-flows.ts";
import { openRun, refuseInput, type RunColumns, toColumns } from "./load.ts";

const fresh: RunColumns = {
  version: null,
  cursor: null,
  state: null,
  intent: null,
  waiting: null,
  stoppedAt: null,
  failures: 0,
  deaths: 0,
};
const failed: Intent = { type: "failed", error: { code: "aborted", message: "no" } };

function opened(machine: Machine, columns: RunColumns): Run {
  const found = openRun(machine, columns);
  if (found.type !== "open") throw new Error(`${found.type}`);
  return found.run;
}

describe("a stored run", () => {
  test.each<Run>([
    runAt("reserve", { failures: 2, deaths: 1, state: { a: [1, null] } }),
    runAt("cool", { waiting: { for: "sleep", sinceMs: 1, untilMs: 5 } }),
    runAt("approval", { waiting: { for: "signal", sinceMs: 1, untilMs: null } }),
    runAt("parcels", { waiting: { for: "children", sinceMs: 1 } }),
    runAt("release", { intent: failed }),
    runAt("report", { intent: { type: "completed", output: null } }),
    runAt(null, { intent: { type: "cancelled", reason: null } }),
    runAt(atEnd),
  ])("is read as it was written: %j", (run) => {
    expect(opened(order, toColumns(run))).toEqual(run);
  });

  test("that was never advanced begins at the first transition, and records so with what comes next", () => {
    const run = opened(order, { ...fresh, deaths: 2 });
    expect(run).toMatchObject({ version: 2, cursor: "reserve", state: {}, deaths: 2 });
    const decision = stored(advanceRun(order, run, threw(), now));
    expect(decision.events.map(({ type }) => type)).toEqual(["start", "error"]);
    expect(decision.run.unnoted).toEqual([]);
  });

  test.each<[string, Partial<RunColumns>]>([
    ["a state that isn't JSON", { state: "{" }],
    ["a state that is no object", { state: "[1]" }],
    ["a state of null", { state: "null" }],
    ["an ending of no kind", { intent: '{"type":"eaten"}' }],
    ["a failure without an error", { intent: '{"type":"failed"}' }],
    ["an ending that isn't JSON", { intent: "completed" }],
    ["a wait for nothing known", { waiting: '{"for":"rain","sinceMs":1}' }],
    ["a sleep without an end", { waiting: '{"for":"sleep","sinceMs":1}' }],
  ])("is set aside where it has %s", (_, over) => {
    const columns = { ...toColumns(runAt("reserve")), ...over };
    expect(openRun(order, columns)).toMatchObject({
      type: "set_aside",
      reason: "unreadable",
      byVersion: 2,
    });
  });

  test("is set aside where it stands at an unknown name", () => {
    for (const cursor of ["gone", "__proto__", "constructor", "toString"]) {
      expect(openRun(order, toColumns(runAt(cursor)))).toMatchObject({
        type: "set_aside",
        reason: "unknown_transition",
        message: expect.stringContaining(`"${cursor}"`),
      });
    }
  });

  test("isn't touched by a version lower than the one that advanced it", () => {
    const columns = toColumns(runAt("reserve", { version: 3 }));
    expect(openRun(order, columns)).toEqual({ type: "refuse", version: 3 });
    // Not even to say that it can't be read.
    expect(openRun(order, { ...columns, state: "{", cursor: "gone" }).type).toBe("refuse");
  });
});

describe("a later version", () => {
  const later = flow("later", {
    version: 3,
    renamed: { fetch: "get", get: "download", "tidy-up": "clean" },
    removed: { check: "fetch", verify: "store", publish: "end", sweep: "clean", wipe: "end" },
  })
    .to("prepare", () => {})
    .to("download", () => {})
    .to("store", () => {})
    .finally("clean", () => {})
    .end();
  const open = (over: Partial<Run>) =>
    opened(later, toColumns(runAt("x", { failures: 2, deaths: 1, ...over })));

  test("goes on at the same name, and leaves the run's version until it advances", () => {
    const run = open({ cursor: "store" });
    expect(run).toMatchObject({ version: 1, cursor: "store", failures: 2, unnoted: [] });
    expect(stored(advanceRun(later, run, returned(), now)).run.version).toBe(3);
  });

  test("goes on at the new name of what was renamed, with its attempts", () => {
    const run = open({ cursor: "fetch" });
    expect(run).toMatchObject({ version: 3, cursor: "download", failures: 2, deaths: 1 });
    const decision = stored(advanceRun(later, run, threw(), now));
    expect(decision.run).toMatchObject({ version: 3, cursor: "download", failures: 3 });
    expect(decision.events).toMatchObject([
      { type: "move", why: "renamed", from: "fetch", next: "download" },
      { type: "error", attempt: 3 },
    ]);
  });

  test("goes on behind what was removed, afresh", () => {
    expect(open({ cursor: "verify" })).toMatchObject({ cursor: "store", failures: 0, deaths: 0 });
    // By way of names that were renamed since.
    expect(open({ cursor: "check" })).toMatchObject({ cursor: "download", failures: 0 });
    expect(open({ cursor: "publish" })).toMatchObject({ cursor: atEnd, failures: 0 });
  });

  test("keeps to finalizers where the run is ending", () => {
    expect(open({ cursor: "tidy-up", intent: failed })).toMatchObject({ cursor: "clean" });
    expect(open({ cursor: "sweep", intent: failed })).toMatchObject({ cursor: "clean" });
    expect(open({ cursor: "wipe", intent: failed })).toMatchObject({ cursor: atEnd });
    const back = toColumns(runAt("verify", { intent: failed }));
    expect(openRun(later, back)).toMatchObject({ type: "set_aside" });
  });

  test("runs a transition that has become a finalizer once the others are done", () => {
    expect(open({ cursor: "clean" })).toMatchObject({ cursor: atEnd, intent: null });
  });

  test("forgets what a run waited for at a transition that was removed", () => {
    const waiting = { for: "sleep", sinceMs: 1, untilMs: 5 } as const;
    expect(open({ cursor: "verify", waiting }).waiting).toBeNull();
    expect(open({ cursor: "fetch", waiting }).waiting).toEqual(waiting);
  });
});

describe("an input that can't be read", () => {
  const refused = new FlotillaError("invalid_input", "url: required");

  test("fails a new run, finalizers and all", () => {
    const first = stored(refuseInput(order, opened(order, fresh), refused, now));
    expect(first.run).toMatchObject({
      cursor: "release",
      intent: { type: "failed", error: { code: "invalid_input" } },
    });
    const second = stored(refuseInput(order, first.run, refused, now));
    const third = refuseInput(order, second.run, refused, now);
    expect(third).toMatchObject({ type: "finish", status: "failed" });
  });

  test("sets a run aside that is under way, or that ends for another reason", () => {
    const aside = { type: "set_aside", reason: "invalid_input", message: "url: required" };
    expect(refuseInput(order, runAt("ship"), refused, now)).toMatchObject(aside);
    const ending = runAt("release", { intent: failed });
    expect(refuseInput(order, ending, refused, now)).toMatchObject(aside);
  });

  test("is checked again where its schema only threw", () => {
    const decision = refuseInput(order, runAt("reserve"), new Error("down"), now);
    expect(decision).toMatchObject({ type: "retry" });
  });
});
