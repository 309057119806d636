import { describe, expect, test } from "vitest";
import { checkPrices, checkUsage, costMillionths, createUsageLedger } from "./usage.ts";

describe("a ledger of tokens", () => {
  test("adds up the calls of each model, the one with the most tokens first", () => {
    const ledger = createUsageLedger();
    expect(ledger.totals()).toEqual([]);
    ledger.count({ model: "small", input: 10, output: 1 }, "middleware");
    ledger.count({ model: "large", input: 100, output: 50, cached: 40 }, "middleware");
    ledger.count({ model: "small", input: 5, output: 2, cached: 5 }, "middleware");
    expect(ledger.totals()).toEqual([
      { model: "large", input: 100, output: 50, cached: 40 },
      { model: "small", input: 15, output: 3, cached: 5 },
    ]);
  });

  test("counts a call once: by the journal, else by the middleware, else as it was reported", () => {
    const ledger = createUsageLedger();
    const call = { model: "small", input: 10, output: 1 };
    ledger.count(call, "report");
    ledger.count({ model: "other", input: 3, output: 3 }, "report");
    expect(ledger.totals()).toHaveLength(2);
    ledger.count({ ...call, input: 11 }, "middleware");
    expect(ledger.totals()[0]).toMatchObject({ model: "small", input: 11, output: 1 });
    ledger.count({ ...call, input: 12 }, "journal");
    expect(ledger.totals()).toEqual([
      { model: "small", input: 12, output: 1, cached: 0 },
      { model: "other", input: 3, output: 3, cached: 0 },
    ]);
  });

  test("counts a report without a model only where nothing else is known", () => {
    const ledger = createUsageLedger();
    ledger.count({ input: 7, output: 1 }, "report");
    expect(ledger.totals()).toEqual([{ model: "", input: 7, output: 1, cached: 0 }]);
    ledger.count({ model: "small", input: 7, output: 1 }, "middleware");
    expect(ledger.totals()).toEqual([{ model: "small", input: 7, output: 1, cached: 0 }]);
  });

  test("holds whole numbers and a bounded number of names, whatever a provider reports", () => {
    const ledger = createUsageLedger();
    ledger.count({ model: "m", input: 10.4, output: -3, cached: 99 }, "middleware");
    expect(ledger.totals()).toEqual([{ model: "m", input: 10, output: 0, cached: 10 }]);
    for (let at = 0; at < 1_000; at++) {
      ledger.count({ model: `model-${at}`, input: 1, output: 0 }, "middleware");
    }
    const totals = ledger.totals();
    expect(totals.length).toBeLessThanOrEqual(21);
    expect(totals.reduce((sum, { input }) => sum + input, 0)).toBe(1_010);
  });
});

describe("the cost of tokens", () => {
  const prices = {
    small: { input: 0.15, output: 0.6, cached: 0.075 },
    plain: { input: 1, output: 2 },
  };

  test("is that of input, cached input and output, in whole millionths", () => {
    const small = { model: "small", input: 1_000, output: 100, cached: 400 };
    expect(costMillionths([small], prices)).toBe(Math.round(600 * 0.15 + 400 * 0.075 + 100 * 0.6));
    const plain = { model: "plain", input: 10, output: 5, cached: 10 };
    expect(costMillionths([plain], prices)).toBe(20);
    expect(costMillionths([small, plain], prices)).toBe(200);
  });

  test.each([
    ["without prices", [{ model: "small", input: 1, output: 1, cached: 0 }], undefined],
    ["of a model without a price", [{ model: "toString", input: 1, output: 1, cached: 0 }], prices],
    ["of a model that has no name", [{ model: "", input: 1, output: 1, cached: 0 }], prices],
    ["of nothing", [], prices],
  ])("isn't known %s", (_, totals, given) => {
    expect(costMillionths(totals, given)).toBeUndefined();
  });
});

test.each([
  null,
  [],
  "free",
  { small: null },
  { small: {} },
  { small: { input: 1 } },
  { small: { input: 1, output: -1 } },
  { small: { input: 1, output: Number.NaN } },
  { small: { input: 1, output: 1, cached: "0" } },
  { small: { input: 1, output: 1, cache: 1 } },
  { "": { input: 1, output: 1 } },
])("prices %j are refused", (prices) => {
  expect(() => checkPrices(prices)).toThrow(expect.objectContaining({ code: "invalid_option" }));
});

test.each([
  undefined,
  {},
  { input: 1 },
  { input: 1, output: 0.5 },
  { input: -1, output: 1 },
  { input: 1, output: 1, cached: 2 },
  { input: 1, output: 1, model: "" },
  { inputTokens: 1, output: 1 },
])("usage %j is refused", (usage) => {
  expect(() => checkUsage(usage as never)).toThrow(
    expect.objectContaining({ code: "invalid_option" }),
  );
});
