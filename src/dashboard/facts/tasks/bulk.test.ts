import { describe, expect, test } from "vitest";
import type { BulkFacts } from "../../asks/tasks.ts";
import { bulkOutcome, bulkProgress } from "./bulk.ts";

const bulk: BulkFacts = {
  bulkId: "b",
  action: "cancel",
  filter: { name: "mail" },
  fromStart: false,
  signal: null,
  as: null,
  state: "running",
  matched: 1_000,
  isExact: true,
  done: 0,
  skipped: 0,
  refused: 0,
  lastTaskId: null,
  createdBy: null,
  reason: null,
  createdAtMs: 0,
  updatedAtMs: 0,
};

describe("an act on all that match", () => {
  test("says how far it is, as far as that is known", () => {
    expect(bulkProgress(bulk)).toEqual({
      title: "Cancelling all of mail that match",
      share: undefined,
    });
    expect(bulkOutcome(bulk)).toBe("waits for the leader to begin");
    const half = { ...bulk, lastTaskId: "x", done: 490, skipped: 9, refused: 1 };
    expect(bulkProgress(half).share).toBe(0.5);
    expect(bulkOutcome(half)).toBe(
      "490 of 1,000 done, 9 skipped, because they had changed, 1 refused, because it wasn't possible",
    );
    expect(bulkProgress({ ...half, isExact: false }).share).toBeUndefined();
    expect(bulkProgress({ ...half, done: 5_000 }).share).toBe(1);
  });

  test("says what became of each kind when it has ended", () => {
    const done: BulkFacts = { ...bulk, state: "done", done: 1, lastTaskId: "x", filter: {} };
    expect(bulkProgress(done)).toEqual({ title: "Cancelled all that match", share: 1 });
    expect(bulkOutcome(done)).toBe("1 task done");
    const stopped: BulkFacts = { ...done, state: "stopped", done: 500 };
    expect(bulkOutcome(stopped)).toBe("500 of 1,000 done, stopped");
    expect(bulkProgress({ ...stopped, lastTaskId: null, done: 0 }).share).toBe(0);
  });
});
