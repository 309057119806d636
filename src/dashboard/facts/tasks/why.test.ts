import { describe, expect, test } from "vitest";
import { evidenceOf, throttleKeyIn } from "./why.ts";

describe("the evidence of a reason", () => {
  test("is shown by fields, with times and spans as such, and without what isn't known", () => {
    const evidence = {
      untilMs: 5_000,
      cause: "retry" as const,
      decidedAtMs: null,
      delayMs: 1_500,
      failures: 2,
      maxAttempts: 5,
      snoozes: 0,
      errorCode: "handler_failed",
      scheduledAtMs: null,
    };
    expect(evidenceOf({ evidence })).toEqual({
      tables: [],
      rows: [
        { label: "until", cell: { type: "time", atMs: 5_000 } },
        { label: "cause", cell: { type: "text", text: "retry" } },
        { label: "delay", cell: { type: "span", ms: 1_500 } },
        { label: "failures", cell: { type: "text", text: "2" } },
        { label: "max attempts", cell: { type: "text", text: "5" } },
        { label: "snoozes", cell: { type: "text", text: "0" } },
        { label: "error code", cell: { type: "text", text: "handler_failed" } },
      ],
    });
  });

  test("has a table where it is about several things", () => {
    const holder = { taskId: "t1", name: "mail", podId: null, sinceMs: 7 };
    const evidence = { scope: "key/mail/a", limit: 1, running: 1, blocked: 3, holders: [holder] };
    const { rows, tables } = evidenceOf({ evidence });
    expect(rows.map(({ label }) => label)).toEqual(["scope", "limit", "running", "blocked"]);
    expect(tables).toEqual([
      {
        label: "holders",
        columns: ["task", "name", "pod", "since"],
        rows: [
          [
            { type: "task", taskId: "t1" },
            { type: "text", text: "mail" },
            { type: "text", text: "–" },
            { type: "time", atMs: 7 },
          ],
        ],
      },
    ]);
    expect(evidenceOf({ evidence: { ...evidence, holders: [] } }).tables).toEqual([]);
  });

  test("of a throttle names its key, where that doesn't depend on the task's input", () => {
    const evidence = { name: "api", limit: 1, inFlight: 1, waiting: 1, ahead: 0, aboutMs: null };
    expect(throttleKeyIn({ evidence: { ...evidence, key: "eu" } })).toBe("eu");
    expect(throttleKeyIn({ evidence: { ...evidence, key: "" } })).toBe("");
    expect(throttleKeyIn({ evidence: { ...evidence, key: null } })).toBeUndefined();
    expect(throttleKeyIn({ evidence: { deaths: 2 } })).toBeUndefined();
  });
});
