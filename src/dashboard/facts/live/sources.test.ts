import { describe, expect, test } from "vitest";
import type { Verb } from "../../../protocol/verbs.ts";
import type { WatchData } from "../../../protocol/watch.ts";
import { isByTheMinute, type Sight, sourcesOf } from "./sources.ts";

const may =
  (...verbs: Verb[]) =>
  (verb: Verb) =>
    verbs.includes(verb);
const all: Sight = { seesAll: true, may: may("fleet:read") };
const ofTenant: Sight = { seesAll: false, may: may("fleet:read") };
const topics = (key: readonly unknown[], sight = all) =>
  sourcesOf(key, sight).map(({ topic }) => topic);
const markOf = (key: readonly unknown[], data: WatchData) => {
  const [source] = sourcesOf(key, all);
  return JSON.stringify(source!.mark ? source!.mark(data) : data);
};
const shownOf = (key: readonly unknown[], data: WatchData) => sourcesOf(key, all)[0]!.show!(data);

describe("the topics behind a page", () => {
  test("are those of what it reads, with names as topics have them", () => {
    expect(topics(["task", "a/b,c"])).toEqual(["task:a%2Fb%2Cc"]);
    expect(topics(["run", "r"])).toEqual(["run:r"]);
    expect(topics(["throttle", "openai"])).toEqual(["throttles"]);
    expect(topics(["groups", {}])).toEqual(["failures"]);
    expect(topics(["why", "t"])).toEqual(["task:t", "overview"]);
    expect(topics(["series", "task:mail"])).toEqual([]);
    expect(topics(["runs", "order", {}])).toEqual(["flows", "overview"]);
    expect(topics(["sessions", { status: "active" }])).toEqual(["sessions"]);
    expect(topics(["session", { sessionId: "s", tenant: "a b" }])).toEqual(["sessions:a%20b"]);
    expect(topics(["owner", { sessionId: "s/1" }])).toEqual(["owner:s%2F1"]);
    expect(topics(["owner", { sessionId: "s", tenant: "a b" }])).toEqual(["owner:s/a%20b"]);
    expect(topics(["owner", {}])).toEqual([]);
    expect(topics(["task"])).toEqual([]);
  });

  test("don't tell of every step and signal, which are read every other second besides", () => {
    const isInPart = (what: string) => sourcesOf([what, "x"], all).some(({ inPart }) => inPart);
    expect(["steps", "signals", "task", "run"].map(isInPart)).toEqual([true, true, false, false]);
  });

  test("are missing for what is counted by the minute, which is read as seldom as that allows", () => {
    expect([["series", "task"], ["tasks", {}], ["home"]].map(isByTheMinute)).toEqual([
      true,
      false,
      false,
    ]);
  });

  test("are only what the caller may watch", () => {
    const names = ["pods", "depth", "flows", "throttles", "queues", "schedules", "audit"];
    for (const name of names) expect(topics([name], ofTenant)).toEqual([]);
    for (const name of ["counts", "throttles", "schedules"])
      expect(topics(["overview", name], ofTenant)).toEqual([]);
    expect(topics(["owner", { sessionId: "s" }], ofTenant)).toEqual([]);
    expect(topics(["task", "t"], ofTenant)).toEqual(["task:t"]);
    // Its newest tasks tell its lists of most changes, and polls of the rest.
    for (const key of [
      ["tasks", {}],
      ["runs", "order", {}],
      ["children", "t"],
      ["started", "t"],
    ])
      expect(sourcesOf(key, ofTenant)).toEqual([{ topic: "newest", inPart: true }]);
    expect(topics(["why", "t"], ofTenant)).toEqual(["task:t", "newest"]);
    expect(topics(["overview", "approvals"], ofTenant)).toEqual(["approvals"]);
    expect(topics(["pods"], { seesAll: true, may: may("tasks:read") })).toEqual([]);
    expect(topics(["audit"])).toEqual([]);
    expect(topics(["audit"], { seesAll: true, may: may("fleet:read", "admin") })).toEqual([
      "audit",
    ]);
  });

  test("tell a list of new tasks and of counts, and not of the time that passes", () => {
    const names = (more: object) => ({ mail: { ready: 1, running: 0, oldestMs: 5, ...more } });
    const before = markOf(["tasks", {}], { newest: "a", names: names({}) });
    expect(markOf(["tasks", {}], { newest: "a", names: names({ oldestMs: 900 }) })).toBe(before);
    expect(markOf(["tasks", {}], { newest: "b", names: names({}) })).not.toBe(before);
    expect(markOf(["tasks", {}], { newest: "a", names: names({ ready: 0 }) })).not.toBe(before);
  });

  test("tell a list of what pods have done, where more wait than are counted", () => {
    const names = { mail: { ready: 10_000, running: 8, oldestMs: 5 } };
    const at = (claimed: number, ended: number) =>
      markOf(["tasks", {}], { newest: "a", names, totals: { claimed, ended } });
    expect(at(508, 501)).not.toBe(at(508, 500));
    expect(at(509, 500)).not.toBe(at(508, 500));
    expect(at(508, 500)).toBe(at(508, 500));
  });

  test("tell one throttle, flow or session of itself alone, also where it is called __proto__", () => {
    const data = (openai: number) =>
      ({
        throttles: Object.fromEntries([
          ["openai", { "": { bound: openai } }],
          ["other", { "": { bound: 1 } }],
          ["__proto__", { "": { bound: 2 } }],
        ]),
      }) as WatchData;
    expect(markOf(["throttle", "openai"], data(4))).not.toBe(
      markOf(["throttle", "openai"], data(3)),
    );
    expect(markOf(["throttle", "other"], data(4))).toBe(markOf(["throttle", "other"], data(3)));
    expect(markOf(["throttle", "__proto__"], data(4))).toContain("2");
    expect(markOf(["throttle", "constructor"], data(4))).toBe("null");
  });

  test("are shown as they are where they have all that the page reads", () => {
    const pods = {
      a: { podId: "a", handlers: "h", lastHeartbeatMs: null },
      b: { podId: "b", handlers: null, lastHeartbeatMs: 3 },
    };
    const handlers = { h: { names: [{ name: "mail", version: null }], more: 0 } };
    const fleet = { pods, handlers, newestBeatMs: 9, gone: 2, more: 0 };
    expect(shownOf(["pods"], fleet)).toEqual({
      pods: [
        { podId: "a", handlers: handlers.h, lastHeartbeatMs: 9 },
        { podId: "b", handlers: undefined, lastHeartbeatMs: 3 },
      ],
      gone: 2,
      more: 0,
    });
    const counts = { tasks: {}, runs: {}, sessions: {}, pods: {} };
    expect(shownOf(["overview", "counts"], { ...counts, names: {} })).toEqual(counts);
    expect(
      shownOf(["overview", "throttles"], {
        throttles: { a: { "": { key: "" }, k: { key: "k" } } },
      }),
    ).toEqual([{ key: "" }, { key: "k" }]);
  });
});
