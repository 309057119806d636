import { describe, expect, test } from "vitest";
import { turns } from "../../base/movable-clock.contract.ts";
import { createBucket } from "./bucket.ts";
import { createInOrder } from "./in-order.ts";

/** Something that ends when it is told to. */
function work(log: string[], name: string) {
  let end = () => {};
  const act = () =>
    new Promise<void>((resolve) => {
      log.push(name);
      end = resolve;
    });
  return { act, end: () => end() };
}

describe("what is asked in order", () => {
  test("begins once what was asked of the same key before has ended, others meanwhile", async () => {
    const log: string[] = [];
    const { add } = createInOrder({ most: 10 });
    const [a1, a2, b1] = [work(log, "a1"), work(log, "a2"), work(log, "b1")];
    add("a", a1.act);
    add("a", a2.act);
    add("b", b1.act);
    await turns();
    expect(log).toEqual(["a1", "b1"]);
    a1.end();
    await turns();
    expect(log).toEqual(["a1", "b1", "a2"]);
  });

  test("is refused where too much is under way, until something has ended", async () => {
    const log: string[] = [];
    const { add } = createInOrder({ most: 2 });
    const first = work(log, "first");
    add("a", first.act);
    add("a", work(log, "second").act);
    expect(() => add("b", work(log, "third").act)).toThrow(
      expect.objectContaining({ code: "overloaded" }),
    );
    await turns();
    first.end();
    await turns();
    add("b", work(log, "fourth").act);
    await turns();
    expect(log).toEqual(["first", "second", "fourth"]);
  });

  test("isn't begun any more once nobody waits for it", async () => {
    const log: string[] = [];
    const { add, close } = createInOrder({ most: 10 });
    const first = work(log, "first");
    add("a", first.act);
    add("a", work(log, "second").act);
    await turns();
    close();
    first.end();
    await turns();
    expect(log).toEqual(["first"]);
  });
});

test("a bucket gives a burst, then as much as comes in, and never more than it holds", () => {
  let nowMs = 0;
  const bucket = createBucket({ monotonic: () => nowMs }, { perSecond: 10, burst: 3 });
  const takes = (count: number) => Array.from({ length: count }, () => bucket.take());
  expect(takes(4)).toEqual([0, 0, 0, 100]);
  nowMs += 50;
  expect(bucket.take()).toBe(50);
  nowMs += 50;
  expect(takes(2)).toEqual([0, 100]);
  nowMs += 60_000;
  expect(takes(4)).toEqual([0, 0, 0, 100]);
});
