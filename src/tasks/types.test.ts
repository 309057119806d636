import { describe, expect, expectTypeOf, test } from "vitest";
import { z } from "zod";
import type { Json, Jsonify } from "../base/json.ts";
import type { Tasks } from "./tasks.ts";
import { type InputOf, type ResultOf, task } from "./task.ts";
import type { TaskHandler } from "./model.ts";

const summarize = task("summarize", {
  input: z.object({
    url: z.string(),
    depth: z.number().default(1),
    at: z.coerce.date().optional(),
  }),
  output: z.object({ words: z.number() }),
});

const oneFile = task(
  "one-file",
  { input: z.object({ to: z.string().transform(Number) }), attempts: 5 },
  async ({ input, attempt, token, taskId, signal }) => {
    expectTypeOf(input).toEqualTypeOf<{ to: number }>();
    expectTypeOf(attempt).toBeNumber();
    expectTypeOf(token).toBeNumber();
    expectTypeOf(taskId).toBeString();
    expectTypeOf(signal).toEqualTypeOf<AbortSignal>();
    return { sent: new Date(0), count: input.to, nothing: undefined as undefined | string };
  },
);

const followed = task(
  "followed",
  {
    input: z.object({ to: z.string().transform(Number), at: z.date() }),
    onFailure({ input, log }) {
      // What was enqueued, as it comes back from JSON, and not what the handler gets.
      expectTypeOf(input.input).toEqualTypeOf<{ to: string; at: string }>();
      expectTypeOf(input.error.code).toBeString();
      expectTypeOf(input.attempts).toBeNumber();
      log.info({}, input.taskId);
    },
  },
  ({ input }) => input.to,
);

const bare = task("bare");
const bareOneFile = task("bare-one-file", {}, ({ input }) => {
  expectTypeOf(input).toEqualTypeOf<Json>();
  return [1, "a"] as const;
});

/** Never called: what it says is checked by the compiler. */
async function typed(tasks: Tasks): Promise<void> {
  const last = await tasks.enqueue(followed, { to: "5", at: new Date(0) });
  expectTypeOf(await tasks.waitFor(last)).toBeNumber();
  // A contract: the input form goes in, the output schema's form comes back.
  const first = await tasks.enqueue(summarize, { url: "x" });
  await tasks.enqueue(
    summarize,
    { url: "x", depth: 2, at: "2026-01-01" },
    { priority: 5, key: "k" },
  );
  expectTypeOf(await tasks.waitFor(first)).toEqualTypeOf<{ words: number }>();
  // @ts-expect-error the url is missing
  await tasks.enqueue(summarize, { depth: 1 });
  // @ts-expect-error the url is text
  await tasks.enqueue(summarize, { url: 5 });
  // @ts-expect-error there is no such option
  await tasks.enqueue(summarize, { url: "x" }, { priorty: 1 });
  const many = await tasks.enqueueMany(summarize, [{ url: "x" }, { url: "y" }]);
  expectTypeOf(many[0]!.created).toBeBoolean();
  // @ts-expect-error one of them doesn't fit
  await tasks.enqueueMany(summarize, [{ url: "x" }, {}]);

  // The one-file form: the same, and the result's type is what its function returns, as JSON.
  const second = await tasks.enqueue(oneFile, { to: "5" });
  expectTypeOf(await tasks.waitFor(second)).toEqualTypeOf<{
    sent: string;
    count: number;
    nothing: string | undefined;
  }>();
  // @ts-expect-error the input form is text
  await tasks.enqueue(oneFile, { to: 5 });

  // Without schemas everything is JSON.
  const third = await tasks.enqueue(bare, { any: ["json", 1, null] });
  expectTypeOf(await tasks.waitFor(third)).toEqualTypeOf<Json>();
  // @ts-expect-error a function isn't JSON
  await tasks.enqueue(bare, () => 1);
  const fourth = await tasks.enqueue(bareOneFile, null);
  expectTypeOf(await tasks.waitFor(fourth)).toEqualTypeOf<readonly [1, "a"]>();

  // By name alone nothing is known.
  const fifth = await tasks.enqueue("by-name", { any: "thing" });
  expectTypeOf(await tasks.waitFor(fifth.taskId)).toEqualTypeOf<Json>();

  // A task's own fields exist only where they can.
  const found = await tasks.get("id");
  if (found?.status === "completed") expectTypeOf(found.result).toEqualTypeOf<Json>();
  // @ts-expect-error only a completed task has a result
  if (found?.status === "failed") expectTypeOf(found.result);
}

describe("types without annotations", () => {
  test("a contract's handler gets the output form and must return what its schema wants", () => {
    const handler = summarize.handle({ attempts: 2 }, async ({ input, progress }) => {
      expectTypeOf(input).toEqualTypeOf<{ url: string; depth: number; at?: Date | undefined }>();
      progress({ done: 0.5 });
      return { words: input.depth };
    });
    summarize.handle(({ input }) => ({ words: input.url.length }));
    // @ts-expect-error words is a number
    summarize.handle(() => ({ words: "many" }));
    // @ts-expect-error words is missing
    summarize.handle(async () => ({}));
    // @ts-expect-error attempts is a number
    expect(() => summarize.handle({ attempts: "x" }, () => ({ words: 1 }))).toThrow(
      "attempts must be",
    );
    expectTypeOf(handler).toExtend<TaskHandler>();
    expect(handler.name).toBe("summarize");
  });

  test("a handler returns the form that its output schema takes, and callers get the form it makes", () => {
    const output = z.object({
      words: z.string().transform(Number),
      lang: z.string().default("en"),
    });
    const counted = task("counted", { output });
    const handler = counted.handle(() => ({ words: "5" }));
    // @ts-expect-error the schema takes text
    counted.handle(() => ({ words: 5 }));
    const direct = task("direct", { output }, () => ({ words: "5" }));
    // @ts-expect-error the schema takes text
    task("direct", { output }, () => ({ words: 5 }));
    type Result = { words: number; lang: string };
    expectTypeOf<ResultOf<typeof handler>>().toEqualTypeOf<Result>();
    expectTypeOf<ResultOf<typeof counted>>().toEqualTypeOf<Result>();
    expectTypeOf<ResultOf<typeof direct>>().toEqualTypeOf<Result>();
    expect(direct.name).toBe("direct");
  });

  test("the input form, the handler's form and the result are distinct", () => {
    expectTypeOf<InputOf<typeof oneFile>>().toEqualTypeOf<{ to: string }>();
    expectTypeOf<InputOf<typeof bare>>().toEqualTypeOf<Json>();
    expectTypeOf<ResultOf<typeof summarize>>().toEqualTypeOf<{ words: number }>();
    expect(typed).toBeTypeOf("function");
  });

  test("a trip through JSON is what it is", () => {
    expectTypeOf<Jsonify<Date>>().toEqualTypeOf<string>();
    expectTypeOf<Jsonify<undefined>>().toEqualTypeOf<null>();
    expectTypeOf<Jsonify<void>>().toEqualTypeOf<null>();
    expectTypeOf<Jsonify<unknown>>().toEqualTypeOf<Json>();
    expectTypeOf<Jsonify<any>>().toEqualTypeOf<Json>();
    expectTypeOf<Jsonify<Json>>().toEqualTypeOf<Json>();
    expectTypeOf<Jsonify<{ a: Json }>>().toEqualTypeOf<{ a: Json }>();
    expectTypeOf<Jsonify<{ a: Date; b?: number; c(): void; d: symbol }>>().toEqualTypeOf<{
      a: string;
      b?: number | undefined;
    }>();
    expectTypeOf<Jsonify<(Date | 1)[]>>().toEqualTypeOf<(string | 1)[]>();
    expect(JSON.stringify({ a: new Date(0), c() {}, d: Symbol("d") })).toBe(
      `{"a":"1970-01-01T00:00:00.000Z"}`,
    );
  });
});

test("a step gives what its function returns, as JSON gives it back", () => {
  task("typed", {}, async ({ step }) => {
    expectTypeOf(await step("one", () => ({ at: new Date(), n: 1 }))).toEqualTypeOf<{
      at: string;
      n: number;
    }>();
    expectTypeOf(await step("two", { key: "k" }, async () => ["a"])).toEqualTypeOf<string[]>();
    expectTypeOf(await step("three", () => {})).toEqualTypeOf<null>();
    expectTypeOf(
      await step.forEach("each", [1, 2], { key: String }, (item) => item > 1),
    ).toEqualTypeOf<boolean[]>();
    const looped = await step.loop("loop", { n: 0 }, async ({ n }, { done }) =>
      n > 2 ? done(`${n}`) : { n: n + 1 },
    );
    expectTypeOf(looped).toEqualTypeOf<string>();
    // @ts-expect-error: a key is text
    await step("four", { key: 5 }, () => 1).catch(() => {});
  });
});
