import { describe, expect, test } from "vitest";
import { flow } from "./flow.ts";

const work = () => {};
/** The chain as plain JavaScript sees it. */
const loose = (options: object = { version: 1 }): any => flow("f", options as { version: number });

describe("a flow is declared", () => {
  test("as parts in their order, with the flow's options where they have none", () => {
    const declared = flow("f", { version: 3, attempts: 4, queue: { name: "images", limit: 5 } })
      .to("one", work)
      .to("two", { attempts: 1, timeoutMs: 5, backoff: { baseMs: 7 } }, work)
      .sleep("three", 50)
      .finally(work)
      .finally("named", { attempts: 2 }, work)
      .finally(work)
      .end();
    expect(declared).toMatchObject({
      name: "f",
      version: 3,
      queue: { name: "images", limit: 5 },
      parts: [
        { kind: "work", name: "one", tries: { attempts: 4, timeoutMs: 900_000, backoff: {} } },
        { name: "two", tries: { attempts: 1, timeoutMs: 5, backoff: { baseMs: 7 } } },
        { kind: "sleep", name: "three", ms: 50 },
      ],
      finalizers: [
        { name: "finally", tries: { attempts: 4 } },
        { name: "named", tries: { attempts: 2 } },
        { name: "finally-3", tries: { attempts: 4 } },
      ],
    });
    expect(flow("g", { version: 1 }).to("one", work).end().tries.attempts).toBe(10);
  });

  test("without changing the chain that it goes on from", () => {
    const begin = flow("f", { version: 1 }).to("one", work);
    const [left, right] = [begin.to("left", work).end(), begin.to("right", work).end()];
    expect(left.parts.map(({ name }) => name)).toEqual(["one", "left"]);
    expect(right.parts.map(({ name }) => name)).toEqual(["one", "right"]);
  });

  test.each<[string, () => unknown, string]>([
    ["no name", () => flow("", { version: 1 }), "a flow's name is"],
    ["no version", () => loose({}), "version must be a whole number"],
    ["a version of 0", () => loose({ version: 0 }), "version must be a whole number"],
    ["an option that isn't there", () => loose({ version: 1, atempts: 5 }), "`attempts`?"],
    ["no options", () => loose(null as never), "options must be an object"],
    [
      "a queue without a name",
      () => loose({ version: 1, queue: { name: "", limit: 1 } }),
      "queue.name must be",
    ],
    ["an interceptor of no use", () => loose({ version: 1, interceptors: [5] }), "a function"],
    ["interceptors that are no list", () => loose({ version: 1, interceptors: {} }), "a list"],
    ["an input that is no schema", () => loose({ version: 1, input: {} }), "input must be"],
    ["an output that is no schema", () => loose({ version: 1, output: 5 }), "output must be"],
    ["a signal whose schema is none", () => loose().signal("a", { schema: {} }), "schema must be"],
    ["no transitions", () => loose().end(), 'flow "f" has no transitions'],
    ["only finalizers", () => loose().finally(work).end(), "no transitions"],
    ["a name twice", () => loose().to("a", work).signal("a"), 'has a "a" already'],
    ["a finalizer's name twice", () => loose().to("a", work).finally("a", work), "already"],
    ["a reserved name", () => loose().to("finally", work), "reserved"],
    ["an unnamed finalizer's name", () => loose().to("finally-2", work), "reserved"],
    ["a name of odd letters", () => loose().to("$end", work), "a transition's name is"],
    ["a name of no letters", () => loose().to("__proto__", work), "a transition's name is"],
    ["no function", () => loose().to("a"), '"a" must be a function'],
    ["no function but options", () => loose().to("a", {}), "must be a function"],
    ["options that are none", () => loose().to("a", 5, work), 'flow "f": "a": expected (name'],
    ["options behind the function", () => loose().to("a", work, {}), "options must be an object"],
    ["an odd number", () => loose().to("a", { attempts: 0 }, work), "attempts must be"],
    ["a sleep of no time", () => loose().sleep("a"), "ms must be"],
    ["a timeout that never is", () => loose().signal("a", { onTimeout: "fail" }), "needs"],
    [
      "an odd timeout",
      () => loose().signal("a", { timeoutMs: 5, onTimeout: "go" }),
      '"fail" or { value }',
    ],
    ["children that may do as they like", () => loose().children("a", { failures: "x" }, work), ""],
    [
      "a transition behind a finalizer",
      () => loose().finally(work).to("a", work),
      "declare finalizers last",
    ],
    ["an initializer behind a transition", () => loose().to("a", work).init(work), "come before"],
  ])("but not with %s", (_, declare, message) => {
    expect(declare).toThrow(expect.objectContaining({ code: "invalid_option" }));
    expect(declare).toThrow(message);
  });

  test.each<[string, object, string]>([
    ["a removed one that is there", { removed: { a: "b" } }, '"a" is declared'],
    ["a renamed one that is there", { renamed: { a: "b" } }, '"a" is declared'],
    ["one that leads nowhere", { removed: { old: "gone" } }, 'maps "old" to "gone"'],
    ["one that is renamed to the end", { renamed: { old: "end" } }, 'maps "old" to "end"'],
    [
      "two that lead to each other",
      { removed: { x: "y" }, renamed: { y: "x" } },
      "this flow doesn't have",
    ],
    ["one in both", { removed: { old: "a" }, renamed: { old: "b" } }, "in both"],
    ["no target", { removed: { old: 5 } }, "name of a transition"],
    ["a list", { removed: ["old"] }, "must be an object"],
  ])("but not with earlier names of no sense: %s", (_, options, message) => {
    const declare = () =>
      loose({ version: 2, ...options })
        .to("a", work)
        .to("b", work)
        .end();
    expect(declare).toThrow(expect.objectContaining({ code: "invalid_option" }));
    expect(declare).toThrow(message);
  });

  test("with earlier names that lead to a transition, a finalizer or the end", () => {
    const options = { removed: { x: "y", z: "end", q: "clean" }, renamed: { y: "a" }, version: 2 };
    const declared = loose(options).to("a", work).finally("clean", work).end();
    expect(declared.removed).toEqual({ x: "y", z: "end", q: "clean" });
  });
});
