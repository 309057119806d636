import { describe, expect, test } from "vitest";
import { rising, singlesOf, stacked } from "./order.ts";

describe("times of a plot", () => {
  test("stay as they are where they rise", () => {
    const given = { timesMs: [1, 2, 3], lines: [[5, null, 7]] };
    expect(rising(given)).toEqual(given);
  });

  test("rise also where a clock has stepped back, and the later of two values counts", () => {
    expect(
      rising({
        timesMs: [100, 200, 150, 200, 300],
        lines: [
          [1, 2, 3, 4, 5],
          [null, 20, 30, null, 50],
        ],
      }),
    ).toEqual({
      timesMs: [100, 150, 200, 300],
      lines: [
        [1, 3, 4, 5],
        [null, 30, null, 50],
      ],
    });
  });

  test("leave out what is no time, and make gaps of what is no number", () => {
    expect(
      rising({ timesMs: [Number.NaN, 1, 2, Infinity], lines: [[1, Number.NaN, 3], []] }),
    ).toEqual({
      timesMs: [1, 2],
      lines: [
        [null, 3],
        [null, null],
      ],
    });
  });
});

describe("bars", () => {
  test("stand on one another, the last at the bottom, and keep their gaps", () => {
    expect(
      stacked([
        [4, null, 1],
        [2, null, null],
      ]),
    ).toEqual([
      [6, null, 1],
      [2, null, null],
    ]);
  });
});

describe("values alone between gaps", () => {
  test("are found, at the ends as well", () => {
    expect(singlesOf([1, null, 2, 3, null, 4])).toEqual([0, 5]);
    expect(singlesOf([])).toEqual([]);
    expect(singlesOf([null, 0, null])).toEqual([1]);
  });
});
