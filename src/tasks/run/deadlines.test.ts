import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { movableClock } from "../../base/contract/movable-clock.ts";
import { createDeadlines } from "./worker.ts";

type Item = { name: string; actAtMs: number };

function setUp() {
  const clock = movableClock();
  const items = new Set<Item>();
  const acted: [string, number][] = [];
  const deadlines = createDeadlines(
    clock,
    () => items,
    (item) => {
      acted.push([item.name, clock.monotonic()]);
      items.delete(item);
    },
  );
  const add = (name: string, actAtMs: number) => {
    items.add({ name, actAtMs });
    deadlines.watch(actAtMs);
  };
  return { clock, items, acted, deadlines, add };
}

describe("deadlines", () => {
  test("are acted on in time, with one timer for all of them", async () => {
    const { clock, acted, add } = setUp();
    add("c", 300);
    add("a", 100);
    add("b", 200);
    expect(clock.timers).toBe(1);
    await clock.advance(99);
    expect(acted).toEqual([]);
    await clock.advance(500);
    expect(acted).toEqual([
      ["a", 100],
      ["b", 200],
      ["c", 300],
    ]);
    expect(clock.timers).toBe(0);
  });

  test("may be moved by the act itself", async () => {
    const clock = movableClock();
    const item = { actAtMs: 100 };
    const acted: number[] = [];
    const deadlines = createDeadlines(
      clock,
      () => [item],
      () => {
        acted.push(clock.monotonic());
        item.actAtMs += 50;
        if (acted.length === 3) item.actAtMs = Infinity;
      },
    );
    deadlines.watch(item.actAtMs);
    await clock.advance(1_000);
    expect(acted).toEqual([100, 150, 200]);
  });

  test("that have passed when they are set are acted on at once", async () => {
    const { clock, acted, add } = setUp();
    await clock.advance(500);
    add("late", 100);
    await clock.advance(0);
    expect(acted).toEqual([["late", 500]]);
  });

  test("are forgotten with a stop", async () => {
    const { clock, acted, add, deadlines } = setUp();
    add("a", 100);
    deadlines.stop();
    await clock.advance(1_000);
    expect(acted).toEqual([]);
  });

  test("are each acted on once, at their time, in any order of setting", async () => {
    const times = fc.array(fc.nat(1_000), { maxLength: 30 });
    await fc.assert(
      fc.asyncProperty(times, async (all) => {
        const { clock, acted, add } = setUp();
        all.forEach((atMs, at) => add(String(at), atMs));
        await clock.advance(2_000);
        const expected = all.map((atMs, at) => [String(at), atMs] as const);
        expect(new Map(acted)).toEqual(new Map(expected));
        expect(acted).toHaveLength(all.length);
      }),
      { numRuns: 30 },
    );
  });
});
