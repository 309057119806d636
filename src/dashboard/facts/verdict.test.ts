import { describe, expect, test } from "vitest";
import type { DepthFacts, ErrorGroupPage, HomeFacts, ShownPod, RedriveFacts } from "../api.ts";
import { type FleetFacts, leaderAmong, verdictOf } from "./verdict.ts";

const nowMs = 1_763_414_400_000;
const counts = { ready: 0, running: 0, delayed: 0, waiting: 0, blocked: 0, alone: 0, failed: 0 };
const runs = { set_aside: 0 };
const home = (more: object = {}) =>
  ({
    name: "flotilla",
    links: {},
    store: "sqlite",
    overview: { tasks: counts, runs, sessions: {}, pods: {}, waiting: [] },
    ...more,
  }) as unknown as HomeFacts;
const pod = (podId: string, more: object = {}) =>
  ({
    podId,
    status: "up",
    birthMs: 1,
    state: null,
    metadata: { names: ["mail"] },
    ...more,
  }) as unknown as ShownPod;
const depth = (of: Record<string, object>) =>
  Object.fromEntries(
    Object.entries(of).map(([name, more]) => [
      name,
      { ...counts, oldestMs: 0, paused: false, ...more },
    ]),
  ) as DepthFacts;
const none: ErrorGroupPage = {
  groups: [],
  count: 0,
  tasks: 0,
  ignored: { groups: 0, tasks: 0 },
};
const facts = (more: Partial<FleetFacts> = {}): FleetFacts => ({
  home: home(),
  depth: {},
  pods: [pod("a")],
  groups: none,
  redrives: [],
  ...more,
});
const texts = (more: Partial<FleetFacts>) =>
  verdictOf(facts(more), nowMs).needs.map(({ text }) => text);

describe("the verdict on the fleet", () => {
  test("is one sentence when all is well", () => {
    const busy = home({ overview: { tasks: { ...counts, running: 12, ready: 3 }, runs } });
    expect(verdictOf(facts({ home: busy }), nowMs)).toEqual({
      tone: "good",
      sentence: "All is well: 1 pod up, 12 tasks running, 3 ready to run.",
      needs: [],
    });
    expect(verdictOf(facts(), nowMs).sentence).toBe(
      "All is well: 1 pod up, nothing runs, none waiting for a slot.",
    );
  });

  test("counts what needs a look, the worst first", () => {
    const verdict = verdictOf(
      facts({
        depth: depth({ mail: { ready: 2, paused: true }, report: { ready: 7 } }),
        groups: { ...none, count: 2, tasks: 31 },
      }),
      nowMs,
    );
    expect(verdict).toMatchObject({ tone: "wrong", sentence: "3 things need a look." });
    expect(verdict.needs.map(({ tone, text }) => [tone, text])).toEqual([
      ["wrong", "No pod has a handler for report, and 7 tasks wait for one"],
      ["warn", "mail is paused with 2 tasks ready"],
      ["warn", "31 tasks failed, of 2 errors"],
    ]);
    expect(verdict.needs[0]).toMatchObject({
      to: "/tasks",
      search: { name: "report", status: "pending" },
    });
  });

  test("tells of a fleet without pods, once and not for every name", () => {
    const waiting = depth({ mail: { ready: 2, oldestMs: 9_999_999 }, report: { ready: 3 } });
    expect(texts({ pods: [pod("a", { status: "down" })], depth: waiting })).toEqual([
      "No pod is up, and 5 tasks could run",
    ]);
    expect(verdictOf(facts({ pods: [] }), nowMs)).toMatchObject({ tone: "good" });
  });

  test("tells of long waits, pods that are stuck, runs set aside and a store that is away", () => {
    expect(texts({ depth: depth({ mail: { ready: 1, oldestMs: 400_000 } }) })).toEqual([
      "The oldest task of mail has waited for 6 min 40 s",
    ]);
    const reasons = [
      { code: "full", text: "full: 10 of 10" },
      { code: "outbox_full", text: "the outbox is full" },
    ];
    expect(texts({ pods: [pod("a", { state: { holds: 10, reasons } })] })).toEqual([
      "Pod a claims no more: the outbox is full",
    ]);
    const aside = home({ overview: { tasks: counts, runs: { set_aside: 1 } } });
    expect(texts({ home: aside })).toEqual(["1 run set aside until resumed"]);
    expect(texts({ home: home({ trouble: "store_unavailable" }) })).toEqual([
      "The store can't be read: store_unavailable",
    ]);
  });

  test("tells of a redrive that halted, for a day", () => {
    const redrive = (updatedAtMs: number, state = "stopped") =>
      ({ redriveId: `r${updatedAtMs}`, state, reason: null, updatedAtMs }) as RedriveFacts;
    const all = [
      redrive(nowMs - 60_000),
      redrive(nowMs - 2 * 86_400_000),
      redrive(nowMs - 1_000, "done"),
    ];
    expect(texts({ redrives: all })).toEqual(["A redrive halted 1 min ago"]);
  });

  test("says what it can to a caller of one tenant", () => {
    const own: FleetFacts = { home: home({ overview: undefined }), groups: none };
    expect(verdictOf(own, nowMs)).toMatchObject({ tone: "good", sentence: "Nothing has failed." });
  });
});

test("the leader is the oldest pod that is up", () => {
  const pods = [pod("c", { birthMs: 5 }), pod("b", { birthMs: 2 }), pod("a", { birthMs: 2 })];
  expect(leaderAmong(pods)).toBe("a");
  expect(leaderAmong([pod("a", { status: "down" }), ...pods.slice(0, 1)])).toBe("c");
  expect(leaderAmong([])).toBeUndefined();
});
