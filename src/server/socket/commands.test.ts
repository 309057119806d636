import { describe, expect, test } from "vitest";
import { eventLoopTurns } from "../../base/contract/movable-clock.ts";
import { createCommandQueue } from "./commands.ts";

/** Something that ends when it is told to. */
function work(log: string[], name: string, options: { alone?: boolean; checks?: boolean } = {}) {
  const { alone = false, checks = false } = options;
  const checked = Promise.withResolvers<boolean>();
  const ended = Promise.withResolvers<void>();
  const act = () => {
    log.push(name);
    return ended.promise;
  };
  const check = () => (checks ? checked.promise : undefined);
  return { asked: { check, act, alone }, checked: checked.resolve, end: ended.resolve };
}

describe("a command in its queue", () => {
  test("begins at once, in order, also while earlier ones go on", () => {
    const log: string[] = [];
    const { add } = createCommandQueue({ maxInFlight: 10 });
    add("a", work(log, "a1").asked);
    add("a", work(log, "a2").asked);
    add("b", work(log, "b1").asked);
    expect(log).toEqual(["a1", "a2", "b1"]);
  });

  test("waits for checks of earlier ones of the same key, others don't", async () => {
    const log: string[] = [];
    const { add } = createCommandQueue({ maxInFlight: 10 });
    const first = work(log, "a1", { checks: true });
    add("a", first.asked);
    add("a", work(log, "a2").asked);
    add("b", work(log, "b1").asked);
    await eventLoopTurns();
    expect(log).toEqual(["b1"]);
    first.checked(true);
    await eventLoopTurns();
    expect(log).toEqual(["b1", "a1", "a2"]);
  });

  test("is left out where its check fails, and the next goes on", async () => {
    const log: string[] = [];
    const { add } = createCommandQueue({ maxInFlight: 2 });
    const first = work(log, "a1", { checks: true });
    add("a", first.asked);
    add("a", work(log, "a2").asked);
    first.checked(false);
    await eventLoopTurns();
    expect(log).toEqual(["a2"]);
    add("a", work(log, "a3").asked);
    expect(log).toEqual(["a2", "a3"]);
  });

  test("waits for the end of what has to be alone", async () => {
    const log: string[] = [];
    const { add } = createCommandQueue({ maxInFlight: 10 });
    const first = work(log, "a1", { alone: true });
    add("a", first.asked);
    add("a", work(log, "a2").asked);
    await eventLoopTurns();
    expect(log).toEqual(["a1"]);
    first.end();
    await eventLoopTurns();
    expect(log).toEqual(["a1", "a2"]);
  });

  test("is refused where too much is under way, until something has ended", async () => {
    const log: string[] = [];
    const { add } = createCommandQueue({ maxInFlight: 2 });
    const first = work(log, "first");
    add("a", first.asked);
    add("a", work(log, "second").asked);
    expect(() => add("b", work(log, "third").asked)).toThrow(
      expect.objectContaining({ code: "overloaded" }),
    );
    first.end();
    await eventLoopTurns();
    add("b", work(log, "fourth").asked);
    expect(log).toEqual(["first", "second", "fourth"]);
  });

  test("isn't begun any more once no caller waits for it", async () => {
    const log: string[] = [];
    const { add, close } = createCommandQueue({ maxInFlight: 10 });
    const first = work(log, "first", { alone: true });
    add("a", first.asked);
    add("a", work(log, "second").asked);
    await eventLoopTurns();
    close();
    first.end();
    await eventLoopTurns();
    expect(log).toEqual(["first"]);
  });
});
