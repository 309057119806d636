import { describe, expect, test } from "vitest";
import { z } from "zod";
import type { Schema } from "../../base/schema.ts";
import { flow } from "../flow.ts";
import { createHandoff, readReturned, readSignal, readOutput } from "./returned.ts";
import type { CallablePart, Machine, SignalPart } from "../machine.ts";
import type { State } from "./run.ts";

const machine: Machine = flow("m", { version: 1, output: z.object({ n: z.coerce.number() }) })
  .to("first", () => {})
  .sleep("nap", 5)
  .children("kids", () => [])
  .to("last", () => ({ n: "5" }))
  .finally("clean", () => {})
  .end();
const loose: Machine = flow("loose", { version: 1 })
  .to("only", () => {})
  .end();

function read(name: string, value: unknown, state: State = {}, of = machine) {
  const part = [...of.parts, ...of.finalizers].find((each) => each.name === name) as CallablePart;
  return readReturned(of, { part, state, value, handoffCalled: false });
}

describe("what a transition returned", () => {
  test("is read as it will come from the store", () => {
    const value = { at: new Date(0), gone: undefined, list: [1, undefined] };
    expect(read("first", value)).toEqual({
      type: "returned",
      set: { at: "1970-01-01T00:00:00.000Z", list: [1, null] },
    });
  });

  test.each([undefined, null])("may be nothing: %s", (value) => {
    expect(read("first", value)).toEqual({ type: "returned", set: null });
  });

  test.each([5, "text", true, [1], new Map([[1, 2]]), new Set([1]), new Date(0), 5n, () => {}])(
    "fails the run where it can't be merged: %s",
    (value) => {
      expect(read("first", value)).toMatchObject({ type: "threw", thrown: { type: "fail" } });
    },
  );

  test("fails the run where it, or the state with it, is too large", () => {
    const part = machine.parts[0] as CallablePart;
    const parts = { part, handoffCalled: false, maxStateBytes: 100 };
    const fits = readReturned(machine, { ...parts, state: {}, value: { a: "x".repeat(60) } });
    expect(fits).toMatchObject({ type: "returned" });
    const state = { b: "x".repeat(60) };
    expect(readReturned(machine, { ...parts, state, value: { a: "x".repeat(60) } })).toMatchObject({
      type: "threw",
      thrown: { type: "fail", error: { code: "payload_too_large" } },
    });
  });

  test("is held to the output where it is the last one's, with the state before it", () => {
    expect(read("last", undefined, { n: "5", more: 1 })).toEqual({
      type: "returned",
      set: null,
      output: { n: 5 },
    });
    expect(read("last", { m: 1 })).toMatchObject({
      type: "threw",
      thrown: { type: "retry", error: { code: "invalid_output" } },
    });
    expect(read("only", { a: 1 }, {}, loose)).toEqual({ type: "returned", set: { a: 1 } });
  });

  test("may be a handoff, which is held to the output too", () => {
    const { handoff, called } = createHandoff();
    expect(called()).toBe(false);
    expect(read("first", handoff({ n: "7" }))).toEqual({ type: "handed_off", output: { n: 7 } });
    expect(called()).toBe(true);
    expect(read("first", handoff({}))).toMatchObject({
      type: "threw",
      thrown: { error: { code: "invalid_output" } },
    });
    expect(read("only", handoff(5), {}, loose)).toEqual({ type: "handed_off", output: 5 });
  });

  test("must be the handoff where that was called", () => {
    const part = machine.parts[0] as CallablePart;
    const forgot = { part, state: {}, value: undefined, handoffCalled: true };
    expect(readReturned(machine, forgot)).toMatchObject({
      type: "threw",
      thrown: { type: "fail", error: { message: expect.stringContaining("return handoff(…)") } },
    });
  });

  test("is awaited where the output's schema takes its time", async () => {
    const validate = async (value: unknown) => ({ value: { seen: value } });
    const output: Schema = { "~standard": { version: 1, vendor: "test", validate } };
    const slow: Machine = { ...loose, output };
    expect(await read("only", { a: 1 }, {}, slow)).toEqual({
      type: "returned",
      set: { a: 1 },
      output: { seen: { a: 1 } },
    });
    const down = async () => Promise.reject(new Error("down"));
    const broken: Schema = { "~standard": { ...output["~standard"], validate: down } };
    expect(await read("only", {}, {}, { ...slow, output: broken })).toMatchObject({
      type: "threw",
      thrown: { type: "retry" },
    });
  });
});

describe("what other functions returned", () => {
  test.each([
    [5.2, 6],
    [-3, 0],
    [0, 0],
  ])("a sleep of %s is one of %s ms", (value, ms) => {
    expect(read("nap", value)).toEqual({ type: "sleep_requested", ms });
  });

  test.each([Number.NaN, Infinity, "5", undefined])("a sleep of %s is a mistake", (value) => {
    expect(read("nap", value)).toMatchObject({ type: "threw", thrown: { type: "fail" } });
  });

  test("children are flows with inputs and options", () => {
    expect(
      read("kids", [
        [loose, 1],
        [loose, 2, { priority: 5 }],
      ]),
    ).toEqual({
      type: "children_requested",
      children: [
        { flow: loose, input: 1, options: {} },
        { flow: loose, input: 2, options: { priority: 5 } },
      ],
    });
    for (const value of [
      undefined,
      loose,
      [loose],
      [["loose", 1]],
      Array(1_001).fill([loose, 1]),
    ]) {
      expect(read("kids", value)).toMatchObject({ type: "threw", thrown: { type: "fail" } });
    }
  });

  test("a finalizer's value means nothing", () => {
    expect(read("clean", 5)).toEqual({ type: "finalized" });
  });
});

describe("the state at the end", () => {
  test("is held to the output, and is the result where there is none", () => {
    expect(readOutput(machine, { n: "5" })).toEqual({ type: "concluded", output: { n: 5 } });
    expect(readOutput(machine, {})).toMatchObject({ type: "threw" });
    expect(readOutput(loose, { a: 1 })).toEqual({ type: "concluded" });
  });
});

describe("a signal that came", () => {
  const part = flow("s", { version: 1 })
    .signal("ok", { schema: z.object({ at: z.coerce.date() }) })
    .end().parts[0] as SignalPart;

  test("is taken in its schema's form, as JSON", () => {
    expect(readSignal(part, { signalId: "s1", payload: { at: "1970-01-01" } })).toEqual({
      type: "signal_seen",
      signal: { signalId: "s1", payload: { at: "1970-01-01T00:00:00.000Z" } },
    });
  });

  test("is refused where it doesn't fit, also by a schema that takes its time", async () => {
    const refused = { type: "signal_refused", signalId: "s1" };
    expect(readSignal(part, { signalId: "s1", payload: 5 })).toMatchObject(refused);
    const schema = z.number().refine(async (value) => value > 5);
    const slow = { ...part, schema };
    expect(await readSignal(slow, { signalId: "s1", payload: 5 })).toMatchObject(refused);
    expect(await readSignal(slow, { signalId: "s1", payload: 6 })).toMatchObject({
      type: "signal_seen",
    });
  });
});
