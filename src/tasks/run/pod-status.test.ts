import { describe, expect, test } from "vitest";
import { reasonsOf, type WorkerFacts } from "./pod-status.ts";

const nothing: WorkerFacts = {
  stopping: false,
  drain: undefined,
  storeAway: false,
  outboxFull: false,
  allPaused: false,
  pausedNames: [],
  alone: false,
  draining: false,
  held: 3,
  capacity: { slots: 10, target: 0.8 },
  overload: undefined,
  limits: { eventLoopMs: 200, memory: 0.9 },
  fullNames: [],
  blockedDemand: [],
};
const late = { lateMs: 240.4, memory: 0.3 };
const short = { lateMs: 5, memory: 0.921 };

describe("why a pod doesn't claim more", () => {
  test.each<[Partial<WorkerFacts>, string[]]>([
    [{}, []],
    [{ held: 7 }, []],
    [{ held: 8 }, ["full: 8 of 8"]],
    [{ held: 9 }, ["full: 9 of 8"]],
    [{ stopping: true, held: 8 }, ["stopping", "full: 8 of 8"]],
    [{ drain: "draining" }, ["draining: what it has begun goes on"]],
    [{ drain: "drained", held: 0 }, ["drained: takes no work until it is undrained"]],
    [{ storeAway: true }, ["the store is away"]],
    [{ outboxFull: true }, ["the outbox is full"]],
    [{ allPaused: true, pausedNames: ["a"] }, ["paused"]],
    [{ pausedNames: ["a", "b"] }, ['"a", "b" paused']],
    [{ alone: true }, ["runs one alone"]],
    [{ draining: true }, ["draining for one"]],
    [{ fullNames: ["x"] }, ['slots of "x" used']],
    [
      { fullNames: ["a", "b", "c", "d", "e", "f", "g"] },
      ['slots of "a", "b", "c", "d", "e" and 2 more used'],
    ],
    [
      { overload: { pressure: late, hasPassed: false } },
      ["event loop late 240 ms: at most 8 for now"],
    ],
    [{ overload: { pressure: short, hasPassed: false } }, ["memory 92 %: at most 8 for now"]],
    [{ overload: { pressure: short, hasPassed: true } }, ["memory was 92 %: at most 8 for now"]],
    [
      { overload: { pressure: { ...late, memory: 1 }, hasPassed: false }, held: 8 },
      [
        "full: 8 of 8",
        "event loop late 240 ms: at most 8 for now",
        "memory 100 %: at most 8 for now",
      ],
    ],
  ])("%j: %j", (facts, texts) => {
    expect(reasonsOf({ ...nothing, ...facts }).map((reason) => reason.text)).toEqual(texts);
  });
});
