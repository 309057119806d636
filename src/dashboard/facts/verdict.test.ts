import { describe, expect, test } from "vitest";
import type { DepthFacts, ErrorGroupPage, HomeFacts, RedriveFacts } from "../api.ts";
import type {
  FleetCounts,
  SeenApproval,
  SeenBulk,
  ListedSchedule,
  SeenThrottle,
} from "../asks/fleet.ts";
import type { ShownPod } from "./fleet/fleet.ts";
import { type FleetFacts, verdictOf } from "./verdict.ts";

const nowMs = 1_763_414_400_000;
const counts = { ready: 0, running: 0, delayed: 0, waiting: 0, blocked: 0, alone: 0, failed: 0 };
const home = (more: object = {}) =>
  ({ name: "flotilla", links: {}, store: "sqlite", ...more }) as unknown as HomeFacts;
const counted = (tasks: object = {}, runs: object = {}) =>
  ({
    tasks: { ...counts, ...tasks },
    runs: { set_aside: 0, ...runs },
    sessions: { all: 0, busy: 0 },
    pods: { up: 1, down: 0 },
  }) as FleetCounts;
const handles = (...names: string[]) => ({
  names: names.map((name) => ({ name, version: null })),
  more: 0,
});
const pod = (podId: string, more: object = {}) =>
  ({
    podId,
    status: "up",
    birthMs: 1,
    lastHeartbeatMs: nowMs,
    drain: null,
    state: null,
    handlers: handles("mail"),
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
  counts: counted(),
  depth: {},
  pods: [pod("a")],
  groups: none,
  acts: { redrives: [], bulks: [] },
  throttles: [],
  schedules: [],
  approvals: [],
  ...more,
});
const texts = (more: Partial<FleetFacts>) =>
  verdictOf(facts(more), nowMs).needs.map(({ text }) => text);

describe("the verdict on the fleet", () => {
  test("is one sentence when all is well", () => {
    const busy = counted({ running: 12, ready: 3 });
    expect(verdictOf(facts({ counts: busy }), nowMs)).toEqual({
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
      ["wrong", "No pod that takes work has a handler for report, and 7 tasks wait for one"],
      ["warn", "mail is paused with 2 tasks ready"],
      ["warn", "31 tasks failed, of 2 errors"],
    ]);
    expect(verdict.needs[0]).toMatchObject({
      to: "/tasks",
      search: { name: "report", state: "ready" },
    });
  });

  test("counts no drained pod for a handler, and claims nothing of pods that don't tell their names", () => {
    const waiting = depth({ mail: { ready: 1 } });
    const drained = pod("b", { drain: "drained", handlers: handles("mail") });
    const other = pod("a", { handlers: handles("report") });
    expect(texts({ pods: [other, drained], depth: waiting })).toEqual([
      "No pod that takes work has a handler for mail, and 1 task waits for one",
      "Pod b is drained and takes no work",
    ]);
    expect(texts({ pods: [other, pod("c", { handlers: undefined })], depth: waiting })).toEqual([]);
    const cut = pod("c", { handlers: { ...handles("report"), more: 1 } });
    expect(texts({ pods: [other, cut], depth: waiting })).toEqual([]);
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
    expect(texts({ counts: counted({}, { set_aside: 1 }) })).toEqual([
      "1 run set aside until resumed",
    ]);
    expect(texts({ home: home({ trouble: "store_unavailable" }) })).toEqual([
      "The store can't be read: store_unavailable",
    ]);
  });

  test("tells of pods that are strained or were left drained", () => {
    const reasons = [{ code: "memory", text: "memory is short" }];
    const all = [
      pod("a", { state: { holds: 2, reasons } }),
      pod("b", { drain: "drained" }),
      pod("c", { drain: "draining" }),
    ];
    expect(texts({ pods: all })).toEqual([
      "Pod a is strained and takes fewer tasks: memory is short",
      "Pod b is drained and takes no work",
    ]);
  });

  test("tells of throttles that let nothing or next to nothing through", () => {
    const throttle = (name: string, more: object) =>
      ({
        name,
        key: "",
        bound: 8,
        breaker: "closed",
        inFlight: 0,
        waiting: 0,
        ...more,
      }) as SeenThrottle;
    const throttles = [
      throttle("fine", { waiting: 9 }),
      throttle("idle", { bound: 1 }),
      throttle("probing", { breaker: "half_open" }),
      throttle("slow", { bound: 1, waiting: 1 }),
      throttle("stopped", { bound: 0, pinned: 0, waiting: 4 }),
      throttle("openai", { key: "gpt", breaker: "open", bound: 1, waiting: 3 }),
    ];
    const { needs } = verdictOf(facts({ throttles }), nowMs);
    expect(needs.map(({ tone, text, to, params }) => [tone, text, to, params])).toEqual([
      [
        "wrong",
        "The breaker of openai (gpt) is open: no call gets through",
        "/throttles/$throttle",
        { throttle: "openai" },
      ],
      [
        "warn",
        "slow lets one call at a time through, and 1 call waits",
        "/throttles/$throttle",
        { throttle: "slow" },
      ],
      [
        "warn",
        "stopped is pinned to 0, and 4 calls wait",
        "/throttles/$throttle",
        { throttle: "stopped" },
      ],
    ]);
  });

  test("tells of schedules that are broken or missed, by the clock of the store", () => {
    const schedule = (scheduleId: string, more: object) =>
      ({
        scheduleId,
        name: "report",
        state: "active",
        nextAtMs: nowMs,
        error: null,
        ...more,
      }) as ListedSchedule;
    const schedules = [
      schedule("due", { nextAtMs: nowMs - 5_000 }),
      schedule("missed", { nextAtMs: nowMs - 600_000 }),
      schedule("paused", { state: "paused", nextAtMs: nowMs - 600_000 }),
      schedule("ended", { state: "ended", nextAtMs: null }),
      schedule("broken", { state: "broken", nextAtMs: null, error: "no such zone" }),
    ];
    // The clock of this browser is an hour ahead.
    const { needs } = verdictOf(facts({ schedules }), nowMs + 3_600_000);
    expect(needs.map(({ text }) => text)).toEqual([
      "The schedule missed was due 10 min ago and hasn't fired",
      "The schedule broken is broken: no such zone",
    ]);
    expect(needs[0]).toMatchObject({
      to: "/schedules/$scheduleId",
      params: { scheduleId: "missed" },
    });
  });

  test("tells of approvals whose deadline is near, in one line", () => {
    const approval = (name: string, leftMs: number | null) =>
      ({
        what: "run",
        id: name,
        name,
        untilMs: leftMs === null ? null : nowMs + leftMs,
      }) as SeenApproval;
    const far = [approval("forever", null), approval("far", 3_600_000)];
    expect(texts({ approvals: far })).toEqual([]);
    expect(texts({ approvals: [...far, approval("order", 240_000)] })).toEqual([
      "order waits for a person, and gives up in 4 min",
    ]);
    expect(texts({ approvals: [approval("late", -1)] })).toEqual([
      "late waits for a person, and gives up now",
    ]);
    const two = [approval("order", 240_000), approval("trip", 60_000)];
    expect(texts({ approvals: two })).toEqual([
      "2 approvals wait for a person, and the first gives up in 1 min",
    ]);
    const many = Array.from({ length: 100 }, (_, at) => approval(`order-${at}`, 240_000));
    expect(texts({ approvals: many })).toEqual([
      "100+ approvals wait for a person, and the first gives up in 4 min",
    ]);
  });

  test("tells for a day of a redrive that halted, and of a bulk that stands still, but of none that was stopped", () => {
    const redrive = (updatedAtMs: number, state = "stopped") =>
      ({ redriveId: `r${updatedAtMs}`, state, reason: null, updatedAtMs }) as RedriveFacts;
    const redrives = [
      redrive(nowMs - 60_000),
      redrive(nowMs - 2 * 86_400_000),
      redrive(nowMs - 1_000, "done"),
    ];
    const bulk = (state: string, agoMs: number) =>
      ({
        bulkId: `${state} ${agoMs}`,
        action: "cancel",
        state,
        done: 1_500,
        updatedAtMs: nowMs - agoMs,
      }) as SeenBulk;
    const bulks = [
      bulk("running", 1_000),
      bulk("running", 600_000),
      bulk("stopped", 120_000),
      bulk("done", 1_000),
    ];
    expect(texts({ acts: { redrives, bulks } })).toEqual([
      "A redrive halted 1 min ago",
      "A bulk cancel makes no progress after 1,500 tasks",
    ]);
  });

  test("names the worst of many of a kind, and counts the rest", () => {
    const names = Array.from({ length: 2_000 }, (_, at) => [`n${at}`, { ready: 1, paused: true }]);
    const many = depth({ ...Object.fromEntries(names), last: { ready: 1 } });
    const found = texts({ depth: many });
    expect(found).toHaveLength(5);
    expect(found[0]).toBe(
      "No pod that takes work has a handler for last, and 1 task waits for one",
    );
    expect(found.at(-1)).toBe("1,997 more names need a look");
  });

  test("says what it can to a caller of one tenant", () => {
    const own: FleetFacts = { home: home(), groups: none };
    expect(verdictOf(own, nowMs)).toMatchObject({ tone: "good", sentence: "Nothing has failed." });
  });
});
