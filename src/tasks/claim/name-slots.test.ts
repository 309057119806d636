import { describe, expect, test } from "vitest";
import { limitRowsByName, createNameSlots, limitByNameSlots } from "./capacity.ts";
import { task } from "../task.ts";

const handlersOf = (slots: Record<string, number | undefined>) =>
  new Map(
    Object.entries(slots).map(([name, most]) => [
      name,
      task(name, most === undefined ? {} : { slots: most }, () => 1),
    ]),
  );
const claims = (count: number) => Array.from({ length: count }, () => ({ name: "a" }));

describe("slots of a name", () => {
  /** Claims as a worker does that gets so many of `a`. */
  const claim = (slots: ReturnType<typeof createNameSlots>, came: number, between = () => {}) => {
    const asked = new Map(slots.free);
    between();
    for (const { name } of claims(came)) slots.acquire(name);
    return slots.settleClaim(asked, claims(came));
  };

  test("cost nothing where no name has any", () => {
    const slots = createNameSlots(handlersOf({ a: undefined }));
    expect(slots).toMatchObject({ any: false, free: undefined, full: [] });
    expect(limitByNameSlots(5, slots, 1)).toBe(5);
  });

  test("are used and given back", () => {
    const slots = createNameSlots(handlersOf({ a: 2, b: undefined }));
    expect(claim(slots, 2)).toBe(false);
    expect(slots.full).toEqual(["a"]);
    expect([slots.release("b"), slots.release("a")]).toEqual([false, true]);
    expect(slots.free).toEqual(new Map([["a", 1]]));
  });

  test("that come free where the last claim found fewer than its limit bring no other claim", () => {
    const slots = createNameSlots(handlersOf({ a: 3 }));
    expect(claim(slots, 2)).toBe(false);
    expect(slots.release("a")).toBe(false);
  });

  test("that come free while a claim is under way bring another, if that one was filled", () => {
    const slots = createNameSlots(handlersOf({ a: 2 }));
    claim(slots, 2);
    slots.release("a");
    expect(claim(slots, 1, () => slots.release("a"))).toBe(true);
    expect(claim(slots, 0, () => slots.release("a"))).toBe(false);
  });

  test.each([
    { slots: { a: 2, b: 1 }, limit: 10, takes: 3 },
    { slots: { a: 2, b: 1 }, limit: 2, takes: 2 },
    { slots: { a: 2, b: undefined }, limit: 10, takes: 10 },
  ])("let a claim of $limit take $takes where they are $slots", ({ slots, limit, takes }) => {
    expect(limitByNameSlots(limit, createNameSlots(handlersOf(slots)), 2)).toBe(takes);
  });

  test("are kept to in a list of what might be claimed", () => {
    const rows = ["a", "b", "a", "a", "b"].map((name, at) => ({ name, at }));
    const places = (most?: Map<string, number>) => limitRowsByName(rows, most).map(({ at }) => at);
    expect(places()).toEqual([0, 1, 2, 3, 4]);
    expect(places(new Map([["a", 2]]))).toEqual([0, 1, 2, 4]);
    expect(
      places(
        new Map([
          ["a", 0],
          ["b", 1],
        ]),
      ),
    ).toEqual([1]);
  });
});
