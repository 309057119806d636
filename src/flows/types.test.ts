import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Json } from "../base/json.ts";
import { type InputOf, type ResultOf, task } from "../tasks/task.ts";
import type { Runs } from "./runs.ts";
import { flow, type Flow, type StateIsNotTheOutput } from "./flow.ts";
import type { Machine } from "./machine.ts";
import type { RunError } from "./decide/run.ts";

const image = z.object({ image: z.string(), at: z.coerce.date().optional() });
const device = z.object({ device: z.string() });

const activate = flow("activate", { version: 1, input: image, output: device })
  .to("check", async ({ input, handoff }) => {
    expectTypeOf(input).toEqualTypeOf<{ image: string; at?: Date | undefined }>();
    return input.image === "known" ? handoff({ device: "d1" }) : undefined;
  })
  .to("download", { attempts: 3, timeoutMs: 60_000 }, async ({ input, state }) => {
    expectTypeOf(state).toEqualTypeOf<{}>();
    return {
      path: `/images/${input.image}`,
      took: new Date(0),
      later: undefined as Date | undefined,
    };
  })
  .to("mount", async ({ state, attempt, signal }) => {
    // What was returned as a date comes from the store as text.
    expectTypeOf(state).toEqualTypeOf<{ path: string; took: string; later: string | undefined }>();
    expectTypeOf(attempt).toBeNumber();
    expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
    return { device: state.path };
  })
  .finally(async ({ outcome, state }) => {
    expectTypeOf(state.path).toEqualTypeOf<string | undefined>();
    if (outcome.type === "completed") {
      expectTypeOf(outcome.output).toEqualTypeOf<{ device: string }>();
    }
    if (outcome.type === "failed") expectTypeOf(outcome.error).toEqualTypeOf<RunError>();
  })
  .end();

const count = flow("count", { version: 1, input: z.object({ url: z.string() }) })
  .to("fetch", ({ handoff, input }) =>
    input.url ? { words: 5 } : handoff({ none: true as const }),
  )
  .end();

const begin = () => flow("begin", { version: 1, input: image });

describe("types along the chain", () => {
  test("a flow takes its input's form and gives its output's", () => {
    expectTypeOf(activate).toExtend<Flow>();
    expectTypeOf(activate).toExtend<Machine>();
    expectTypeOf<InputOf<typeof activate>>().toEqualTypeOf<{ image: string; at?: unknown }>();
    expectTypeOf<ResultOf<typeof activate>>().toEqualTypeOf<{ device: string }>();
    expect(activate.parts.map(({ name }) => name)).toEqual(["check", "download", "mount"]);
  });

  test("without an output, the result is the state or what was handed off", () => {
    expectTypeOf<ResultOf<typeof count>>().toEqualTypeOf<{ words: number } | { none: true }>();
    expect(count.output).toBeUndefined();
  });

  test("only flows are started, each with its own input", () => {
    const mail = task("mail", { input: z.object({ to: z.string() }) });
    const start = (runs: Runs) => [
      // @ts-expect-error a task is enqueued
      runs.start(mail, { to: "ada" }),
      // @ts-expect-error an image is text
      runs.start(activate, { image: 5 }),
      // @ts-expect-error attempts are those of its transitions
      runs.start(activate, { image: "a" }, { attempts: 3 }),
      runs.start(activate, { image: "a" }),
      runs.start("activate", { anything: 1 }),
    ];
    expect(start).toBeInstanceOf(Function);
  });

  test("the beginning of a chain names the flow for programs that only start runs", () => {
    const contract = flow("activate", { version: 1, input: image, output: device });
    expectTypeOf<InputOf<typeof contract>>().toEqualTypeOf<{ image: string; at?: unknown }>();
    expectTypeOf<ResultOf<typeof contract>>().toEqualTypeOf<{ device: string }>();
    expect(contract.name).toBe("activate");
  });

  test("a later value replaces an earlier one, and what may be missing leaves it", () => {
    const chain = begin()
      .to("one", () => ({ a: 1, b: "x" }))
      .to("two", () => ({ a: "one" }))
      .to("three", () => ({ b: undefined as number | undefined }))
      .to("four", ({ state }) => {
        expectTypeOf(state).toEqualTypeOf<{ a: string; b: string | number }>();
      })
      .to("five", ({ input }) => (input.image ? { c: true } : undefined))
      .to("six", ({ state }) => {
        expectTypeOf(state).toEqualTypeOf<{ a: string; b: string | number; c?: boolean }>();
        return state.c ? ({ kind: "x", x: 1 } as const) : ({ kind: "y" } as const);
      })
      .to("seven", ({ state }) => {
        if (state.kind === "x") expectTypeOf(state.x).toEqualTypeOf<1>();
        else expectTypeOf(state.x).toEqualTypeOf<undefined>();
      });
    expect(chain.end().parts).toHaveLength(7);
  });

  test("a handoff is held to the output", () => {
    const declared = flow("declared", { version: 1, input: image, output: device });
    // @ts-expect-error the device is text
    declared.to("check", ({ handoff }) => handoff({ device: 5 }));
    // @ts-expect-error the device is missing
    declared.to("check", ({ handoff }) => handoff({}));
    const transformed = z.object({ words: z.string().transform(Number) });
    const ends = flow("transformed", { version: 1, output: transformed })
      .to("check", ({ handoff }) => handoff({ words: "5" }))
      .to("count", () => ({ words: "5" }))
      .end();
    expectTypeOf<ResultOf<typeof ends>>().toEqualTypeOf<{ words: number }>();
    expect(ends.parts).toHaveLength(2);
  });

  test("there is no end unless the state is the output, and the message names what is wrong", () => {
    const declared = flow("declared", { version: 1, output: device });
    const lacking = declared.to("mount", () => ({ path: "x" }));
    // @ts-expect-error the device is missing
    expect(lacking.end()).toBeDefined();
    expectTypeOf(lacking.end).toEqualTypeOf<StateIsNotTheOutput<"device">>();
    const maybe = declared.to("mount", ({ runId }) => (runId ? { device: "x" } : undefined));
    // @ts-expect-error the device may be missing
    expect(maybe.end()).toBeDefined();
    const dated = flow("dated", { version: 1, output: z.object({ at: z.date() }) });
    // @ts-expect-error what comes from the store is text, not a date
    expect(dated.to("now", () => ({ at: new Date(0) })).end()).toBeDefined();
    const more = declared.to("mount", () => ({ device: "x", path: "y" })).end();
    expectTypeOf<ResultOf<typeof more>>().toEqualTypeOf<{ device: string }>();
  });

  test("signals land in the state under their name", () => {
    const chain = begin()
      .signal("approval", { schema: z.object({ by: z.string(), at: z.coerce.date() }) })
      .signal("any")
      .signal("vote", { schema: z.boolean(), timeoutMs: 5, onTimeout: { value: null } })
      .to("use", ({ state }) => {
        expectTypeOf(state.approval).toEqualTypeOf<{ by: string; at: string }>();
        expectTypeOf(state.any).toEqualTypeOf<Json>();
        expectTypeOf(state.vote).toEqualTypeOf<boolean | null>();
      });
    expect(chain.end().parts).toHaveLength(4);
  });

  test("children give their outputs in the order in which they were started", () => {
    const chain = begin()
      .children("pair", ({ input }) => [
        [activate, { image: input.image }],
        [count, { url: "x" }, { priority: 5 }],
      ])
      .children("many", ({ state }) => {
        expectTypeOf(state.pair[0]).toEqualTypeOf<{ device: string }>();
        return ["a", "b"].map((image) => [activate, { image }]);
      })
      .children("kept", { failures: "keep" }, async () => [[activate, { image: "x" }]])
      .to("use", ({ state }) => {
        expectTypeOf(state.pair[1]).toEqualTypeOf<{ words: number } | { none: true }>();
        expectTypeOf(state.many).toEqualTypeOf<{ device: string }[]>();
        const [kept] = state.kept;
        if (kept.status === "completed") expectTypeOf(kept.output.device).toBeString();
        if (kept.status === "failed") expectTypeOf(kept.error.message).toBeString();
      });
    // @ts-expect-error an image is text
    begin().children("bad", () => [[activate, { image: 5 }]]);
    expect(chain.end().parts).toHaveLength(4);
  });

  test("initializers make what isn't stored", () => {
    const chain = begin()
      .init(({ input }) => ({ open: (path: string) => new Map([[path, input.image]]) }))
      .init(async () => ({ opened: new Date(0) }))
      .to("use", ({ env }) => {
        expectTypeOf(env.opened).toEqualTypeOf<Date>();
        expectTypeOf(env.open("x")).toEqualTypeOf<Map<string, string>>();
      })
      .finally(({ env }) => void env.open("y"));
    expect(chain.end().initializers).toHaveLength(2);
  });

  test("names are used once, and some are reserved", () => {
    const chain = begin().to("one", () => {});
    // @ts-expect-error there is a "one"
    expect(() => chain.to("one", () => {})).toThrow('has a "one" already');
    // @ts-expect-error there is a "one"
    expect(() => chain.sleep("one", 5)).toThrow('has a "one" already');
    // @ts-expect-error there is a "one"
    expect(() => chain.finally("one", () => {})).toThrow('has a "one" already');
    // @ts-expect-error it is where every run ends
    expect(() => chain.to("end", () => {})).toThrow('"end" is a reserved name');
    const known: string = "two";
    expect(chain.to(known, () => {}).end().parts).toHaveLength(2);
  });

  test("what isn't in its place isn't there", () => {
    // @ts-expect-error without transitions there is no end
    expect(() => begin().end()).toThrow("has no transitions");
    const ending = begin()
      .to("one", () => {})
      .finally(() => {});
    // @ts-expect-error finalizers come last
    expect(() => ending.to("two", () => {})).toThrow("declare finalizers last");
    const chain = begin().to("one", () => {});
    // @ts-expect-error initializers come first
    expect(() => chain.init(() => {})).toThrow("initializers come before transitions");
  });

  test("what can't be merged can't be returned", () => {
    // @ts-expect-error a number has no fields
    begin().to("one", () => 5);
    // @ts-expect-error a list has none either
    begin().to("one", async () => [1, 2]);
    // @ts-expect-error a map would be stored as nothing
    begin().to("one", () => new Map());
    // @ts-expect-error there is no such option
    expect(() => begin().to("one", { atempts: 5 }, () => {})).toThrow("did you mean `attempts`?");
    expect(
      begin()
        .to("one", () => ({ a: 1 }))
        .end().parts,
    ).toHaveLength(1);
  });
});
