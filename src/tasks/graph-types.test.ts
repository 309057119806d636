import { expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Tasks } from "./tasks.ts";
import { task } from "./task.ts";

const words = task("words", {
  input: z.object({ url: z.string() }),
  output: z.number(),
});

test("a graph's answers are known by ref, and inputs are held to their contracts", () => {
  // Only compiled.
  const typed = async (flotilla: Tasks) => {
    const made = await flotilla.enqueueGraph([
      { ref: "one", task: words, input: { url: "x" } },
      { ref: "two", task: "by name", input: 5, after: ["one"], options: { priority: 1 } },
    ]);
    expectTypeOf(made).toHaveProperty("one");
    expectTypeOf(made).not.toHaveProperty("three");
    expectTypeOf(await flotilla.waitFor(made.one)).toEqualTypeOf<number>();
    // @ts-expect-error a url is text
    await flotilla.enqueueGraph([{ ref: "one", task: words, input: { url: 5 } }]);
    const options = { after: [] };
    // @ts-expect-error what a row waits for isn't among its options
    await flotilla.enqueueGraph([{ ref: "x", task: words, input: { url: "" }, options }]);
  };
  expectTypeOf(typed).toBeFunction();
});
