import { describe, expect, test } from "vitest";
import type { RunBulk } from "../../asks/flows.ts";
import { runBulkActions, bulkFilter, bulkSentence } from "./run-bulk.ts";

describe("an act on the runs that a list shows", () => {
  test("is one that fits their status", () => {
    expect(runBulkActions({})).toEqual(["signal", "resume", "cancel"]);
    expect(runBulkActions({ status: "setAside" })).toEqual(["resume", "cancel"]);
    expect(runBulkActions({ status: "failed" })).toEqual(["retry"]);
    expect(runBulkActions({ status: "completed" })).toEqual([]);
  });

  test("isn't there for one version, because it would be for all", () => {
    expect(runBulkActions({ version: "2" })).toEqual([]);
  });

  test("is about the same runs as the list, and never about everything", () => {
    expect(bulkFilter("order", {})).toEqual({ name: "order" });
    expect(
      bulkFilter("order", { at: "pay", status: "setAside", tenant: "acme", cursor: "x" }),
    ).toEqual({ name: "order", at: "pay", setAside: true, tenant: "acme" });
    expect(bulkFilter("order", { status: "failed" })).toEqual({ name: "order", status: "failed" });
  });

  test("says how far it is and what came of it", () => {
    const bulk = (more: Partial<RunBulk>) =>
      ({
        action: "cancel",
        state: "running",
        matched: 1_200,
        isExact: true,
        done: 500,
        skipped: 0,
        refused: 0,
        ...more,
      }) as RunBulk;
    expect(bulkSentence(bulk({}))).toBe("Cancelling 1,200 runs: 500 cancelled.");
    expect(bulkSentence(bulk({ matched: 10_000, isExact: false }))).toBe(
      "Cancelling 10,000+ runs: 500 cancelled.",
    );
    expect(bulkSentence(bulk({ state: "done", done: 1, skipped: 2, refused: 1 }))).toBe(
      "Done: 1 run cancelled, 2 had changed meanwhile, 1 refused.",
    );
    expect(bulkSentence(bulk({ state: "stopped", action: "resume" }))).toBe(
      "Stopped: 500 runs resumed.",
    );
  });
});
