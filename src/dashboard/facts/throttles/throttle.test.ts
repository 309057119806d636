import { describe, expect, test } from "vitest";
import { boundLine, boundMarks, eventsInOrder, withPresent } from "./bound-line.ts";
import {
  causeText,
  changeText,
  changeTone,
  limitIn,
  refusedText,
  type ThrottleEventFacts,
  type ThrottleFacts,
  throttleSentence,
  useOf,
} from "./throttle.ts";

const outcomes = { success: 0, throttled: 0, timeout: 0, server_error: 0, ignored: 0 };
const facts = (more: Partial<ThrottleFacts> = {}): ThrottleFacts => ({
  name: "openai",
  key: "",
  bound: 8,
  epoch: 3,
  settings: {},
  breaker: "closed",
  holdMs: 0,
  inFlight: 3,
  waiting: 0,
  callsWaiting: 0,
  outcomes,
  pods: [],
  lastUpdateMs: 0,
  ...more,
});
const event = (
  seq: number,
  atMs: number,
  more: Partial<ThrottleEventFacts>,
): ThrottleEventFacts => ({
  seq,
  atMs,
  cause: "learned_up",
  before: 4,
  bound: 8,
  epoch: seq,
  breaker: "closed",
  by: null,
  ...more,
});

describe("how a throttle stands", () => {
  test.each<[Partial<ThrottleFacts>, string, string]>([
    [{}, "good", "3 of 8 permits in use."],
    [{ bound: 1, inFlight: 1, waiting: 1 }, "good", "1 of 1 permit in use, and 1 waits."],
    [{ waiting: 1_200 }, "good", "3 of 8 permits in use, and 1,200 wait."],
    [{ holdMs: 12_000 }, "warn", "The downstream asks for no calls for 12 s."],
    [{ breaker: "half_open" }, "warn", "The breaker is half open: a few calls are tried."],
    [
      { breaker: "open", waiting: 2 },
      "wrong",
      "The breaker is open: no call begins for now, and 2 wait.",
    ],
    [{ pinned: 5 }, "warn", "Pinned at 5: nothing is learned."],
    [{ pinned: 0, waiting: 4 }, "wrong", "Pinned at 0: no call begins, and 4 wait."],
  ])("%j is %s: %s", (more, tone, text) => {
    expect(throttleSentence(facts(more))).toEqual({ tone, text });
  });

  test("has a share of permits in use, also at a bound of none and above it", () => {
    expect(useOf({ inFlight: 0, bound: 0 })).toBe(0);
    expect(useOf({ inFlight: 2, bound: 0 })).toBe(1);
    expect(useOf({ inFlight: 12, bound: 8 })).toBe(1);
    expect(useOf({ inFlight: 2, bound: 8 })).toBe(0.25);
  });

  test("has a share of calls that were refused", () => {
    expect(refusedText({ outcomes })).toBeUndefined();
    expect(refusedText({ outcomes: { ...outcomes, success: 10 } })).toBe("0 %");
    expect(refusedText({ outcomes: { ...outcomes, success: 99_999, throttled: 1 } })).toBe(
      "< 0.1 %",
    );
    expect(refusedText({ outcomes: { ...outcomes, success: 98, throttled: 2 } })).toBe("2.0 %");
    expect(refusedText({ outcomes: { ...outcomes, success: 1, throttled: 1 } })).toBe("50 %");
  });
});

describe("a change of the bound", () => {
  test("is said in words, with its cause", () => {
    expect(changeText({ before: null, bound: 2 })).toBe("begins at 2");
    expect(changeText({ before: 8, bound: 4 })).toBe("fell from 8 to 4");
    expect(changeText({ before: 4, bound: 4 })).toBe("stays at 4");
    expect(causeText("refused")).toContain("429");
    expect(causeText("of a later version")).toBe("of a later version");
    expect(causeText("constructor")).toBe("constructor");
  });

  test("has a tone by its direction, and none where a person did it", () => {
    expect(changeTone(event(1, 0, {}))).toBe("good");
    expect(changeTone(event(1, 0, { before: 8, bound: 4, cause: "refused" }))).toBe("warn");
    expect(changeTone(event(1, 0, { before: 8, bound: 4, cause: "pinned" }))).toBe("plain");
  });

  test("comes no earlier than the one before, though the clock was set back", () => {
    const events = [event(3, 700, {}), event(2, 500, {}), event(1, 600, {})];
    expect(eventsInOrder(events).map(({ seq, atMs }) => [seq, atMs])).toEqual([
      [1, 600],
      [2, 600],
      [3, 700],
    ]);
  });

  test("is marked within the time of a plot, with who did it", () => {
    const events = [
      event(3, 900, { cause: "pinned", before: 8, bound: 5, by: "key ops" }),
      event(2, 500, { before: 4, bound: 8 }),
      event(1, 100, { before: null, bound: 4, cause: "first_use" }),
    ];
    expect(boundMarks(events, { fromMs: 400, toMs: 1_000 })).toEqual([
      {
        atMs: 500,
        text: "the limit rose from 4 to 8: all of it was used, and nothing was refused",
      },
      { atMs: 900, text: "the limit fell from 8 to 5: it was pinned, by key ops" },
    ]);
  });
});

describe("the line of the bound", () => {
  const timesMs = [0, 60, 120, 180];

  test("has the bound at the end of each stretch, by the events", () => {
    const events = [event(2, 130, { before: 8, bound: 3 }), event(1, 70, { before: 4, bound: 8 })];
    expect(boundLine(timesMs, events, [null, null, null, null])).toEqual([4, 8, 3, 3]);
  });

  test("changes with the stretch that begins when an event comes", () => {
    const events = [event(1, 120, { before: 4, bound: 8 })];
    expect(boundLine(timesMs, events, [])).toEqual([4, 4, 8, 8]);
  });

  test("is what was counted before the first event that is known", () => {
    const events = [event(7, 130, { before: 6, bound: 3 })];
    expect(boundLine(timesMs, events, [5, null, 6, null])).toEqual([5, 6, 3, 3]);
  });

  test("is a gap where nothing is known", () => {
    expect(boundLine(timesMs, [], [null, 2, null, null])).toEqual([null, 2, null, null]);
    const begun = [event(1, 130, { before: null, bound: 2, cause: "first_use" })];
    expect(boundLine(timesMs, begun, [])).toEqual([null, null, 2, 2]);
  });

  test("ends with what is the case now", () => {
    expect(withPresent([1, null], 7)).toEqual([1, 7]);
    expect(withPresent([1, null], undefined)).toEqual([1, null]);
    expect(withPresent([], 7)).toEqual([]);
  });
});

describe("a limit that a person types", () => {
  test.each([
    ["5", 5],
    [" 0 ", 0],
    ["100000", 100_000],
    ["100001", undefined],
    ["", undefined],
    ["-1", undefined],
    ["1.5", undefined],
    ["1e3", undefined],
    ["9".repeat(400), undefined],
    ["５", undefined],
  ])("%j is %s", (text, limit) => {
    expect(limitIn(text)).toBe(limit);
  });
});
