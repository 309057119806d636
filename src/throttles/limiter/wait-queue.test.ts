import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createPriorityQueue, type WaitEntry } from "./wait-queue.ts";
import { priorities, type Priority } from "./priority.ts";

const anybody = () => true;
const anyPriority = fc.constantFrom(...priorities);

describe("waiting", () => {
  test("is first come, first served within a priority, and the more urgent go first", () => {
    const waiting = createPriorityQueue<string>();
    waiting.add("batch", "b1");
    waiting.add("interactive", "i1");
    waiting.add("batch", "b2");
    waiting.add("control", "c1");
    waiting.add("interactive", "i2");
    waiting.add("retry", "r1");

    expect(drain(waiting)).toEqual(["c1", "i1", "i2", "r1", "b1", "b2"]);
    expect(waiting.size).toBe(0);
  });

  test("gives every 16th turn to the one that has waited longest, however urgent the others are", () => {
    const waiting = createPriorityQueue<string>();
    waiting.add("batch", "patient");
    for (let each = 0; each < 40; each++) waiting.add("interactive", "urgent");

    expect(drain(waiting).indexOf("patient")).toBe(15);
  });

  test("passes over waiters that may not have a permit, also when it is the oldest one's turn", () => {
    const waiting = createPriorityQueue<string>();
    waiting.add("batch", "patient");
    for (let each = 0; each < 20; each++) waiting.add("control", "urgent");

    for (let turn = 0; turn < 20; turn++) {
      const place = waiting.next((priority) => priority === "control")!;
      expect(place.item).toBe("urgent");
      waiting.take(place);
    }
    expect(waiting.next((priority) => priority === "control")).toBeUndefined();
    expect(waiting.next(anybody)?.item).toBe("patient");
  });

  test("can be left anywhere in the queue, once", () => {
    const waiting = createPriorityQueue<string>();
    const places = ["a", "b", "c", "d"].map((name) => waiting.add("batch", name));

    expect(waiting.remove(places[0]!)).toBe(true);
    expect(waiting.remove(places[2]!)).toBe(true);
    expect(waiting.remove(places[2]!)).toBe(false);
    expect(waiting.sizeOf("batch")).toBe(2);
    waiting.add("batch", "e");
    expect(drain(waiting)).toEqual(["b", "d", "e"]);
  });

  test("loses no waiter, serves none twice, and keeps the order of each priority, whatever happens", () => {
    const steps = fc.array(
      fc.oneof(
        { weight: 4, arbitrary: fc.record({ do: fc.constant("add"), priority: anyPriority }) },
        { weight: 3, arbitrary: fc.record({ do: fc.constant("take") }) },
        { weight: 1, arbitrary: fc.record({ do: fc.constant("leave"), at: fc.nat() }) },
      ) as fc.Arbitrary<{ do: "add" | "take" | "leave"; priority: Priority; at: number }>,
      { maxLength: 300 },
    );
    fc.assert(
      fc.property(steps, (all) => {
        const waiting = createPriorityQueue<number>();
        let present: WaitEntry<number>[] = [];
        const wrong: string[] = [];
        const check = (what: string, holds: boolean) => holds || wrong.push(what);
        for (const [number, step] of all.entries()) {
          if (step.do === "add") present.push(waiting.add(step.priority, number));
          else if (step.do === "take") {
            const place = waiting.next(anybody);
            check("somebody is found where somebody waits", !place === (present.length === 0));
            if (!place) continue;
            const first = present.find((each) => each.priority === place.priority);
            check("it is the first of its priority", place === first);
            waiting.take(place);
            present = present.filter((each) => each !== place);
          } else if (present.length > 0) {
            const [place] = present.splice(step.at % present.length, 1);
            check("whoever waits can leave", waiting.remove(place!));
          }
          check("all are counted", waiting.size === present.length);
        }
        expect(wrong).toEqual([]);
        expect([...waiting].map(({ item }) => item).toSorted(byNumber)).toEqual(
          present.map(({ item }) => item),
        );
      }),
    );
  });

  test("starves no waiter: of those ahead, a bounded number of later ones get their turn before", () => {
    fc.assert(
      fc.property(
        fc.array(anyPriority, { maxLength: 20 }),
        fc.array(anyPriority, { minLength: 700, maxLength: 700 }),
        (ahead, later) => {
          const waiting = createPriorityQueue<string>();
          for (const priority of ahead) waiting.add(priority, "ahead");
          waiting.add("batch", "patient");
          let turns = 0;
          for (const priority of later) {
            // There is always a more urgent caller, and more come than go.
            waiting.add(priority === "batch" ? "interactive" : priority, "later");
            const place = waiting.next(anybody)!;
            waiting.take(place);
            turns++;
            if (place.item === "patient") return turns <= (ahead.length + 1) * 16;
          }
          return false;
        },
      ),
      { numRuns: 50 },
    );
  });
});

function drain(waiting: ReturnType<typeof createPriorityQueue<string>>): string[] {
  const served: string[] = [];
  for (;;) {
    const place = waiting.next(anybody);
    if (!place) return served;
    waiting.take(place);
    served.push(place.item);
  }
}

const byNumber = (a: number, b: number) => a - b;
