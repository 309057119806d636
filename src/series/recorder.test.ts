import { describe, expect, test } from "vitest";
import { countDurationOf, countOf, encodeCounts } from "./counts.ts";
import { createRecorder } from "./recorder.ts";
import { parseSubject, subjectKinds, subjectText } from "../protocol/series-subject.ts";

const shown = (recorder: ReturnType<typeof createRecorder>) =>
  Object.fromEntries(
    [...recorder.take()].map(([subject, counts]) => [subject, JSON.parse(encodeCounts(counts))]),
  );

describe("a recorder", () => {
  test("counts by subject, and the sum of each kind", () => {
    const recorder = createRecorder();
    countOf(recorder.tally("task", "mail"), "completed");
    countOf(recorder.tally("task", "mail"), "completed");
    countOf(recorder.tally("task", "bill"), "failed");
    countDurationOf(recorder.tally("agent", "support").run, 4);
    expect(shown(recorder)).toEqual({
      "task:mail": { counts: { completed: 2 } },
      "task:bill": { counts: { failed: 1 } },
      task: { counts: { completed: 2, failed: 1 } },
      "agent:support": { run: { sumMs: 4, buckets: [0, 0, 1] } },
      agent: { run: { sumMs: 4, buckets: [0, 0, 1] } },
    });
  });

  test("sums the runs of flows without their transitions, and throttles not at all", () => {
    const recorder = createRecorder();
    countOf(recorder.tally("flow", "order"), "completed");
    countOf(recorder.tally("flow", "order", "pay"), "completed", 3);
    countOf(recorder.tally("throttle", "openai", "key 1"), "success");
    expect(shown(recorder)).toEqual({
      "flow:order": { counts: { completed: 1 } },
      "flow:order pay": { counts: { completed: 3 } },
      flow: { counts: { completed: 1 } },
      "throttle:openai key 1": { counts: { success: 1 } },
    });
  });

  test("begins anew when it was taken, and is empty then", () => {
    const recorder = createRecorder();
    expect(recorder.isEmpty).toBe(true);
    countOf(recorder.tally("task", "mail"), "completed");
    expect(recorder.isEmpty).toBe(false);
    recorder.take();
    expect(recorder.isEmpty).toBe(true);
    expect(shown(recorder)).toEqual({});
  });

  test("counts what is beyond its bound together, by kind", () => {
    const recorder = createRecorder({ most: 2 });
    for (const name of ["a", "b", "c", "d"]) countOf(recorder.tally("task", name), "completed");
    countOf(recorder.tally("agent", "support"), "completed");
    countOf(recorder.tally("task", "a"), "completed");
    expect(shown(recorder)).toEqual({
      "task:a": { counts: { completed: 2 } },
      "task:b": { counts: { completed: 1 } },
      "other:task": { counts: { completed: 2 } },
      task: { counts: { completed: 5 } },
      "other:agent": { counts: { completed: 1 } },
      agent: { counts: { completed: 1 } },
    });
  });
});

describe("a subject", () => {
  test.each([
    { kind: "task" as const, name: "mail:to/all.v2" },
    { kind: "flow" as const, name: "order", part: "pay" },
    { kind: "throttle" as const, name: "my api 50%20", part: "a key: 1 %" },
    { kind: "pod" as const },
    { kind: "task" as const, isOther: true as const },
  ])("is read as it was written: %o", (subject) => {
    expect(parseSubject(subjectText(subject))).toEqual(subject);
  });

  test.each(["", "x", "task:", "other", "other:x", "other:task:mail", "Task:mail", ":", "task "])(
    "is none by the text %j",
    (text) => {
      expect(parseSubject(text)).toBeUndefined();
    },
  );

  test("of every kind stands before all subjects of that kind, and behind no other", () => {
    for (const kind of subjectKinds) {
      const [alone, named, end] = [kind, subjectText({ kind, name: "￿" }), `${kind};`];
      expect([end, named, alone].toSorted()).toEqual([alone, named, end]);
    }
  });
});
