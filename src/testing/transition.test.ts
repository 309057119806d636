import { describe, expect, test } from "vitest";
import { z } from "zod";
import { flow } from "../flows/flow.ts";
import { runTransition } from "./transition.ts";

const child = flow("child", { version: 1 })
  .to("only", () => ({ done: true }))
  .end();

const around: string[] = [];

const order = flow("order", {
  version: 3,
  input: z.object({ at: z.coerce.date() }),
  interceptors: [
    async ({ transition }, next) => {
      around.push(transition);
      return next();
    },
  ],
})
  .init(() => ({ shop: "real" }))
  .to("reserve", ({ input, env, attempt, progress }) => {
    progress({ tried: attempt });
    return { year: input.at.getUTCFullYear(), shop: env.shop, gone: undefined };
  })
  .to("check", ({ state, handoff }) => {
    if (state.year < 2000) return handoff({ tooOld: true });
    throw new Error("sold out");
  })
  .sleep("cool", ({ state }) => state.year * 10)
  .signal("approval", { schema: z.object({ by: z.string() }) })
  .children("parcels", ({ state }) => [[child, state.approval.by]] as const)
  .finally("report", ({ outcome, progress }) => progress(outcome.type))
  .end();

const input = { at: "2026-01-02" } as never;

describe("one transition alone", () => {
  test("gets its input as the schema makes it and gives what it adds, as JSON", async () => {
    const result = await runTransition(order, "reserve", { input, attempt: 2 });

    expect(result.set).toEqual({ year: 2026, shop: "real" });
    expect(result.state).toEqual({ year: 2026, shop: "real" });
    expect(result.progress).toEqual([{ tried: 2 }]);
  });

  test("gets what the test makes in place of the initializers", async () => {
    const { set } = await runTransition(order, "reserve", { input, env: { shop: "fake" } });
    expect(set).toMatchObject({ shop: "fake" });
  });

  test("runs inside of the flow's interceptors", async () => {
    around.length = 0;
    await runTransition(order, "reserve", { input });
    expect(around).toEqual(["reserve"]);
  });

  test("throws what it throws", async () => {
    const run = runTransition(order, "check", { input, state: { year: 2026 } });
    await expect(run).rejects.toThrow("sold out");
  });

  test("returns what it hands off", async () => {
    const result = await runTransition(order, "check", { input, state: { year: 1999 } });
    expect(result.handedOff).toEqual({ tooOld: true });
  });

  test("returns how long it sleeps and which runs it starts", async () => {
    const state = { year: 2026, approval: { by: "ada" } };
    expect(await runTransition(order, "cool", { input, state })).toMatchObject({
      sleepsMs: 20_260,
    });
    const { children } = await runTransition(order, "parcels", { input, state });
    expect(children).toMatchObject([{ flow: { name: "child" }, input: "ada" }]);
  });

  test("gets a signal, and refuses one that its schema refuses", async () => {
    const result = await runTransition(order, "approval", { input, signal: { by: "ada" } });
    expect(result.set).toEqual({ approval: { by: "ada" } });
    const refused = runTransition(order, "approval", { input, signal: { by: 7 } });
    await expect(refused).rejects.toMatchObject({ code: "invalid_input" });
    const untold = runTransition(order, "approval", { input });
    await expect(untold).rejects.toThrow("pass the option `signal`");
  });

  test("may be a finalizer, which gets the ending", async () => {
    const outcome = { type: "cancelled", reason: null } as const;
    const { progress } = await runTransition(order, "report", { input, outcome });
    expect(progress).toEqual(["cancelled"]);
  });

  test("that isn't there is an error that names the one that was probably meant", async () => {
    await expect(runTransition(order, "reserv", { input })).rejects.toThrow('mean "reserve"');
  });
});
