import { describe, expect, test } from "vitest";
import type { ApprovalFacts } from "../../asks/sessions.ts";
import { decisionId, waitsOf } from "./waits.ts";

const base = { tenant: "default", name: "order", signal: null, untilMs: null, calls: [] };
const run = (id: string, sinceMs: number, untilMs: number | null = null): ApprovalFacts => ({
  ...base,
  what: "run",
  id,
  sinceMs,
  untilMs,
  signal: "approval",
});

describe("what waits for a person", () => {
  test("is listed one by one, the nearest deadline first, then what has waited longest", () => {
    const call = { messageId: "m", tool: "order", sinceMs: 50 };
    const session: ApprovalFacts = {
      ...base,
      what: "session",
      id: "s",
      sinceMs: 50,
      untilMs: 500,
      calls: [
        { ...call, toolCallId: "c1", approvalId: "a1" },
        { ...call, toolCallId: "c2", signal: "word", untilMs: 500 },
      ],
    };
    const found = waitsOf([run("late", 90), session, run("early", 10), run("due", 80, 100)]);
    expect(found.map(({ id, toolCallId }) => [id, toolCallId])).toEqual([
      ["due", undefined],
      ["s", "c2"],
      ["early", undefined],
      ["s", "c1"],
      ["late", undefined],
    ]);
    expect(found[0]).toMatchObject({ signal: "approval", untilMs: 100 });
    expect(found[3]).toMatchObject({ tool: "order", approvalId: "a1" });
    expect(found[3]!.signal).toBeUndefined();
    expect(new Set(found.map(({ key }) => key)).size).toBe(found.length);
  });

  test("with calls that can't be read is left out", () => {
    expect(waitsOf([{ ...base, what: "session", id: "s", sinceMs: 1 }])).toEqual([]);
  });
});

describe("the id of a decision", () => {
  test("is the same in every tab, short enough, and another for another call", () => {
    expect(decisionId("s", "m", "c")).toBe("dashboard:s:m:c");
    const long = "x".repeat(400);
    expect(decisionId(long, "a")).toBe(decisionId(long, "a"));
    expect(decisionId(long, "a")).not.toBe(decisionId(long, "b"));
    expect(decisionId(long, "a").length).toBeLessThanOrEqual(200);
  });
});
