import { expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Tasks } from "./tasks.ts";
import { task } from "./task.ts";

const summarize = task("summarize", {
  input: z.object({ url: z.string(), depth: z.number().default(1) }),
  output: z.object({ words: z.number() }),
});
const oneFile = task(
  "one-file",
  { input: z.object({ to: z.string().transform(Number) }) },
  ({ input }) => input.to,
);

/** Never called: what it says is checked by the compiler. */
async function typed(tasks: Tasks): Promise<void> {
  const replaced = await tasks.enqueue(
    summarize,
    { url: "x" },
    {
      key: "k",
      onDuplicate: "replace",
      uniqueWhile: "unfinished",
      uniqueForMs: 5,
      runAt: new Date(),
    },
  );
  expectTypeOf(replaced.replaced).toEqualTypeOf<boolean | undefined>();
  expectTypeOf(await tasks.waitFor(replaced)).toEqualTypeOf<{ words: number }>();
  // @ts-expect-error there is no such policy
  await tasks.enqueue(summarize, { url: "x" }, { key: "k", onDuplicate: "ignore" });
  // @ts-expect-error a time is a date or a number
  await tasks.enqueue(summarize, { url: "x" }, { runAt: "tomorrow" });
  await tasks.enqueueMany(summarize, [{ url: "x" }], { key: ({ url }) => url });
  // @ts-expect-error the key is made of the input, which has no id
  await tasks.enqueueMany(summarize, [{ url: "x" }], { key: ({ id }) => id });

  // Each row's input is its own task's, however many tasks there are.
  const { outcomes, created } = await tasks.enqueueEach([
    { task: summarize, input: { url: "x" } },
    { task: oneFile, input: { to: "5" }, options: { priority: 1 } },
    { task: "by-name", input: Symbol.iterator },
    { task: "by-name" },
    new Error("a line that wasn't JSON"),
  ]);
  expectTypeOf(created).toBeNumber();
  const [first] = outcomes;
  if (first?.outcome === "rejected") expectTypeOf(first.message).toBeString();
  else expectTypeOf(first?.taskId).toEqualTypeOf<string | undefined>();
  // @ts-expect-error only what was stored has an id
  if (first?.outcome === "rejected") expectTypeOf(first.taskId);
  // @ts-expect-error the second doesn't fit
  await tasks.enqueueEach([
    { task: summarize, input: { url: "x" } },
    { task: oneFile, input: 5 },
  ]);
  // @ts-expect-error the input is missing
  await tasks.enqueueEach([{ task: summarize }]);
  // @ts-expect-error a row has no transaction of its own
  await tasks.enqueueEach([{ task: "by-name", options: { tx: 1 } }]);

  // What comes bit by bit is checked alike.
  async function* mixed() {
    yield { task: summarize, input: { url: "x" }, options: { key: "k" } };
    yield { task: oneFile, input: { to: "5" } };
    yield { task: "by-name", input: 5 };
    yield new Error("a line that wasn't JSON");
  }
  await tasks.enqueueEach(mixed(), { onOutcome: ({ index }) => expectTypeOf(index).toBeNumber() });
  async function* unfit() {
    yield { task: summarize, input: { url: "x" } };
    yield { task: oneFile, input: { to: 5 } };
  }
  // @ts-expect-error the second doesn't fit
  await tasks.enqueueEach(unfit());

  // Whether any pod works on it is known of waiting tasks only.
  const found = await tasks.get("id");
  if (found?.status === "pending") expectTypeOf(found.noWorker).toBeBoolean();
  // @ts-expect-error what has ended needs no worker
  if (found?.status === "completed") expectTypeOf(found.noWorker);
  expectTypeOf((await tasks.stats()).noWorker).toEqualTypeOf<readonly string[]>();
}

test("keys, times and rows of several tasks need no annotations", () => {
  expect(typed).toBeTypeOf("function");
});
