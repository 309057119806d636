import { describe, expect, test } from "vitest";
import { fold, type HistoryEvent, toEventRow, toHistory } from "./run.ts";
import { play } from "../contract/simulated-run.ts";
import { order } from "../contract/sample-flows.ts";

describe("events as rows", () => {
  test.each<HistoryEvent>([
    { type: "start", version: 1, next: "one" },
    { type: "move", version: 2, why: "renamed", from: "one", next: "two" },
    { type: "park", version: 1, transition: "one", waiting: null, untilMs: 5, message: "later" },
    { type: "resume", version: 1 },
    { type: "pod_died" },
    { type: "set_aside", reason: "unreadable", message: "its state", byVersion: 2 },
  ])("come back as they went: %j", (event) => {
    expect(toHistory([toEventRow(event)])).toEqual([event]);
  });

  test("of a whole run come back as they went, among those of its task", () => {
    const { events, row } = play(order, [34, 4, 100, 7]);
    const rows = events.flatMap((event) => [
      toEventRow(event),
      { type: "resubmitted", attempt: 1, detail: null },
    ]);
    expect(toHistory(rows)).toEqual(events);
    expect(events.some(({ type }) => type === "error")).toBe(true);
    expect(rows.find(({ type }) => type === "error")?.attempt).toBe(1);
    expect(fold(toHistory(rows))).toMatchObject({ cursor: null, version: row.version });
  });

  test("record of a pod's death only that it died", () => {
    expect(toHistory([{ type: "pod_died", attempt: 3, detail: null }])).toEqual([
      { type: "pod_died" },
    ]);
  });

  test("record that a run was set aside and given back to an earlier version", () => {
    const run = fold([
      { type: "start", version: 2, next: "one" },
      { type: "set_aside", reason: "unreadable", message: "", byVersion: 2 },
      { type: "resume", version: 1 },
    ]);
    expect(run).toMatchObject({ version: 1, cursor: "one" });
  });
});
