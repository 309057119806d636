import { describe, expect, test } from "vitest";
import type { AgentReport } from "./agents.ts";
import { type AgentEvidence, agentViolations } from "./checkers.ts";

const ran = (pod: number, label: string): AgentReport[] => [
  { pod, label, place: "call 1", begins: "model[1]" },
  { pod, label, place: "book begins", begins: "book[1.a]" },
  { pod, label, place: "book did", effect: `${label}/book[1.a]` },
];

/** An agent that lost its first process in its tool, and whose call was stored by then. */
const evidence: AgentEvidence = {
  clean: "clean",
  lost: new Map([["a", 1]]),
  reports: [...ran(1, "clean"), ...ran(2, "a"), ...ran(3, "a").slice(1)],
  ended: new Map([
    ["clean", "done"],
    ["a", "done"],
  ]),
  takeovers: [{ pod: 3, stored: new Set(["a model[1]"]) }],
};
const judged = (change: Partial<AgentEvidence>) => agentViolations({ ...evidence, ...change });
const more = (...reports: AgentReport[]) => judged({ reports: [...evidence.reports, ...reports] });

describe("the checker of durable agents", () => {
  test("lets what a lost process may cost pass", () => {
    expect(agentViolations(evidence)).toEqual([]);
  });

  test("finds an agent that came to something else", () => {
    const ended = new Map([...evidence.ended, ["a", "failed"]]);
    expect(judged({ ended })).toEqual(["a came to failed, and not to done"]);
  });

  test("finds a call that began again although it was stored", () => {
    expect(more({ pod: 3, label: "a", place: "call 1", begins: "model[1]" })).toEqual([
      "a model[1] began again although it was stored",
    ]);
  });

  test("finds more calls and attempts at tools than processes that were lost", () => {
    const again = { label: "a", place: "again" };
    expect(judged({ lost: new Map([["a", 0]]) })).toEqual([
      "a began book[1.a] 2 times, and lost its process 0",
    ]);
    expect(
      more({ ...again, pod: 2, begins: "model[1]" }, { ...again, pod: 2, begins: "model[2]" }),
    ).toEqual(["a made 3 calls, and lost its process 1 times"]);
  });

  test("lets a tool with steps of its own begin again where it was told to stop", () => {
    const lost = new Map([["a", 0]]);
    const within = { pod: 3, label: "a", place: "call 1 within", begins: "book[1.a]/model[1]" };
    expect(judged({ lost, reports: [...evidence.reports, within] })).toEqual([
      "a made 2 calls, and lost its process 0 times",
    ]);
    const clean = { ...within, pod: 1, label: "clean" };
    expect(judged({ lost, reports: [...evidence.reports, within, clean] })).toEqual([]);
  });

  test("finds an effect under a second key, and one that is missing", () => {
    expect(more({ pod: 3, label: "a", place: "book did", effect: "a/book[1.b]" })).toEqual([
      "a: book did under a/book[1.a] and a/book[1.b]",
    ]);
    const reports = evidence.reports.filter(({ label, effect }) => label === "clean" || !effect);
    expect(judged({ reports })).toEqual(["a did nothing"]);
  });
});
