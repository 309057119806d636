import { describe, expect, test } from "vitest";
import type { BulkFacts } from "../asks/bulk.ts";
import {
  bulkFilterOf,
  bulkOutcome,
  bulkProgress,
  bulksOnTicked,
  rowOutcomeText,
  possibleBulks,
  possibleRunBulks,
  runBulkFilter,
} from "./bulk.ts";

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

describe("an act on many", () => {
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
    expect(bulkOutcome({ ...done, done: 2 }, "run")).toBe("2 runs done");
    expect(bulkProgress({ ...done, filter: { ids: ["a"] } }, "run").title).toBe(
      "Cancelled runs that were ticked",
    );
    const stopped: BulkFacts = { ...done, state: "stopped", done: 500 };
    expect(bulkOutcome(stopped)).toBe("500 of 1,000 done, stopped");
    expect(bulkProgress({ ...stopped, lastTaskId: null, done: 0 }).share).toBe(0);
  });

  test("says what became of each ticked row", () => {
    expect(rowOutcomeText("cancel", { outcome: "done", status: "claimed" })).toBe("cancelled");
    expect(rowOutcomeText("cancel", { outcome: "left", status: "completed" })).toBe(
      "left: it is completed",
    );
    expect(rowOutcomeText("cancel", { outcome: "left", status: "pending" })).toContain(
      "it wasn't possible, or not any more",
    );
    expect(rowOutcomeText("retry", { outcome: "gone", status: null })).toContain("no such task");
    expect(rowOutcomeText("delete", { outcome: "gone", status: null })).toBe("is gone");
    expect(rowOutcomeText("retry", { outcome: "waiting", status: "failed" })).toContain("its turn");
  });
});

describe("an act on what a list shows", () => {
  test("is one that fits the filter of tasks", () => {
    expect(possibleBulks({ name: "mail" })).toEqual([
      "cancel",
      "retry",
      "resume",
      "signal",
      "delete",
    ]);
    expect(possibleBulks({ status: "failed" })).toEqual(["retry", "delete"]);
    expect(possibleBulks({ status: "claimed" })).toEqual(["cancel", "signal"]);
    expect(possibleBulks({ pod: "p" })).toEqual(["cancel", "signal"]);
    expect(possibleBulks({ group: "g" })).toEqual(["retry", "delete"]);
    expect(possibleBulks({ setAside: "true" })).toEqual(["cancel", "resume", "signal"]);
  });

  test("is one that fits the status of runs", () => {
    const all = ["cancel", "retry", "resume", "signal", "delete"];
    expect(possibleRunBulks({})).toEqual(all);
    expect(possibleRunBulks({ version: "2" })).toEqual(all);
    expect(possibleRunBulks({ status: "open" })).toEqual(["cancel", "resume", "signal"]);
    expect(possibleRunBulks({ status: "setAside" })).toEqual(["cancel", "resume", "signal"]);
    expect(possibleRunBulks({ status: "failed" })).toEqual(["retry", "delete"]);
    expect(possibleRunBulks({ status: "completed" })).toEqual(["delete"]);
  });

  test("is one that fits a ticked row", () => {
    const row = (status: string, isSetAside = false) => ({ id: "x", status, isSetAside });
    expect(bulksOnTicked([row("pending"), row("failed")])).toEqual([
      "cancel",
      "retry",
      "signal",
      "delete",
    ]);
    expect(bulksOnTicked([row("pending", true)])).toEqual(["cancel", "resume", "signal"]);
    expect(bulksOnTicked([row("completed")])).toEqual(["delete"]);
  });

  test("has the filter of the address", () => {
    expect(
      bulkFilterOf({
        name: "mail",
        status: undefined,
        sinceMs: "5",
        version: "2",
        ids: "a,b",
        setAside: "true",
        "payload.order.id": "7",
        "payload.note": "it's",
        "payload.text": '"7"',
        "payload.whole": "{}",
      }),
    ).toEqual({
      name: "mail",
      sinceMs: 5,
      version: 2,
      ids: ["a", "b"],
      setAside: true,
      payload: { "order.id": 7, note: "it's", text: "7", whole: "{}" },
    });
    const hostile = bulkFilterOf({ name: "mail", "payload.__proto__": "1" });
    expect(Object.keys(hostile["payload"] as object)).toEqual(["__proto__"]);
  });

  test("is about the same runs as the list, and never about everything", () => {
    expect(runBulkFilter("order", {})).toEqual({ name: "order" });
    expect(
      runBulkFilter("order", {
        at: "pay",
        status: "setAside",
        tenant: "acme",
        version: "0",
        cursor: "x",
      }),
    ).toEqual({ name: "order", at: "pay", setAside: true, tenant: "acme", version: 0 });
    expect(runBulkFilter("order", { status: "failed" })).toEqual({
      name: "order",
      status: "failed",
    });
    expect(runBulkFilter("order", { status: "open" })).toEqual({ name: "order" });
  });
});
