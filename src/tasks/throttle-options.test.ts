import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import { throttle } from "../throttles/throttle.ts";
import { task } from "./task.ts";

const api = throttle("api");

describe("a handler's throttle", () => {
  test("is a throttle, one of its keys, or a throttle with what makes the key of the input", () => {
    const ask = task("ask", { input: z.object({ model: z.string(), at: z.date() }) });
    expect(ask.handle({ throttle: api }, () => {}).throttle).toMatchObject({ key: "" });
    expect(ask.handle({ throttle: api.key("gpt") }, () => {}).throttle).toMatchObject({
      declared: { name: "api" },
      key: "gpt",
    });
    const byInput = ask.handle(
      {
        throttle: {
          use: api,
          key(input) {
            // What was enqueued, as it comes back from JSON.
            expectTypeOf(input).toEqualTypeOf<{ model: string; at: string }>();
            return input.model;
          },
          estimate: (input) => input.model.length,
          priority: "interactive",
        },
      },
      ({ input }) => void expectTypeOf(input.at).toEqualTypeOf<Date>(),
    );
    expect(byInput.throttle).toMatchObject({ priority: "interactive" });
    const oneFile = task(
      "one-file",
      {
        input: z.object({ model: z.string() }),
        throttle: { use: api, key: (input) => input.model },
      },
      () => {},
    );
    expect(oneFile.throttle).toMatchObject({ declared: { name: "api" } });
    expect(task("plain", {}, () => {})).not.toHaveProperty("throttle");
  });

  test.each([
    ["what isn't one", { throttle: {} }, /throttle\.use must be what/],
    ["a name", { throttle: "api" }, /options must be an object/],
    ["a key that is no function", { throttle: { use: api, key: "gpt" } }, /must be a function/],
    ["an unknown option", { throttle: { use: api, kei: "" } }, /did you mean `key`/],
    ["an unknown priority", { throttle: { use: api, priority: "high" } }, /must be one of/],
    ["an estimate below zero", { throttle: { use: api, estimate: -1 } }, /from 0/],
  ])("isn't %s", (_, options, message) => {
    const ask = task("ask");
    expect(() => ask.handle(options as never, () => {})).toThrow(message);
  });
});
