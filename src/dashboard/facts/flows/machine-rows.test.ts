import { describe, expect, test } from "vitest";
import type { FlowFacts, RunFacts } from "../../asks/flows.ts";
import { drawnMachine, machineRows, type MachineState, runDots } from "./machine-rows.ts";

const flow = (more: Partial<FlowFacts> = {}): FlowFacts => ({
  flow: "order",
  machine: {
    version: 2,
    queue: null,
    parts: [
      { name: "pay", kind: "work", does: "runs" },
      { name: "approve", kind: "signal", does: "waits for a signal" },
      { name: "finally", kind: "finally", does: "always" },
    ],
  },
  workers: [],
  places: {},
  openByVersion: {},
  placesByVersion: {},
  completed: 0,
  failed: 0,
  cancelled: 0,
  atLeast: false,
  stuck: [],
  ...more,
});
const nothing = new Set<string>();
const stuck = { flow: "order", why: "retrying", runs: 1, runId: "r", sinceMs: 0 } as const;
const times = [{ at: "pay", outcomes: { completed: 3, retry: 2 }, p50Ms: 8, p95Ms: 20 }];

describe("a drawn machine", () => {
  test("has its states in order, with the runs, times and stuck ones of each", () => {
    const { states, isDeclared, elsewhere } = drawnMachine(
      flow({
        places: { start: { ready: 1 }, pay: { running: 2, retrying: 1 }, gone: { setAside: 1 } },
        stuck: [{ ...stuck, at: "pay", version: 2 }],
      }),
      times,
      undefined,
    );
    expect(isDeclared).toBe(true);
    expect(states.map(({ name, kind, runs }) => [name, kind, runs])).toEqual([
      ["start", "start", 1],
      ["pay", "work", 3],
      ["approve", "signal", 0],
      ["finally", "finally", 0],
      ["end", "end", 0],
    ]);
    expect(states[1]).toMatchObject({ times: times[0], stuck: [{ why: "retrying" }] });
    expect(elsewhere.map(({ name, runs }) => [name, runs])).toEqual([["gone", 1]]);
  });

  test("of one version counts the runs of that version alone", () => {
    const given = flow({
      places: { pay: { running: 3 } },
      placesByVersion: { 2: { pay: { running: 1 } }, 1: { old: { setAside: 2 } } },
      stuck: [{ ...stuck, at: "old", version: 1 }],
    });
    const second = drawnMachine(given, [], 2);
    expect(second.states[1]).toMatchObject({ name: "pay", runs: 1, stuck: [] });
    const first = drawnMachine(given, [], 1);
    expect(first.isDeclared).toBe(false);
    expect(first.states.map(({ name, runs }) => [name, runs])).toEqual([
      ["start", 0],
      ["old", 2],
      ["end", 0],
    ]);
    expect(first.states[1]!.stuck).toHaveLength(1);
    expect(drawnMachine(given, [], 9).states).toHaveLength(2);
  });

  test("takes states of any name", () => {
    const places = Object.fromEntries([
      ["__proto__", { ready: 1 }],
      ["constructor", { ready: 2 }],
    ]);
    const { states } = drawnMachine(flow({ machine: null, places }), [], undefined);
    expect(states.map(({ name, runs }) => [name, runs])).toEqual([
      ["start", 0],
      ["__proto__", 1],
      ["constructor", 2],
      ["end", 0],
    ]);
    const named = { name: "toString", kind: "work", does: "runs" } as const;
    const machine = { version: 1, queue: null, parts: [named] };
    expect(drawnMachine(flow({ machine }), [], undefined).states[1]!.runs).toBe(0);
  });
});

const many = (busy: readonly number[]): MachineState[] => {
  const parts = Array.from({ length: 500 }, (_, at) => {
    return { name: `s${at}`, kind: "work", does: "runs" } as const;
  });
  const places = Object.fromEntries(busy.map((at) => [`s${at}`, { running: 1 }]));
  const machine = { version: 1, queue: null, parts };
  return [...drawnMachine(flow({ machine, places }), [], undefined).states];
};
const shapeOf = (rows: ReturnType<typeof machineRows>) =>
  rows.map((row) => (row.type === "fold" ? row.states.length : row.state.name));

describe("a long machine", () => {
  test("of 500 states is folded to those that runs are at", () => {
    const rows = machineRows(many([10, 12, 400]), { opened: nothing });
    expect(shapeOf(rows)).toEqual(["start", 10, "s10", "s11", "s12", 387, "s400", 99, "end"]);
  });

  test("keeps what is chosen, and shows what was opened", () => {
    const rows = machineRows(many([]), { opened: new Set(["s0"]), chosen: "s300" });
    expect(shapeOf(rows).slice(0, 3)).toEqual(["start", "s0", "s1"]);
    expect(rows).toHaveLength(1 + 300 + 1 + 1 + 1);
  });

  test("isn't folded where it is short", () => {
    const { states } = drawnMachine(flow(), [], undefined);
    expect(shapeOf(machineRows(states, { opened: nothing }))).toEqual([
      "start",
      "pay",
      "approve",
      "finally",
      "end",
    ]);
  });
});

test("runs are drawn in their rows, a few of each, in an order that stays", () => {
  const run = (runId: string, at: string | null, more: object = {}) =>
    ({ runId, at, doing: null, noWorker: false, ...more }) as RunFacts;
  const { states } = drawnMachine(flow(), [], undefined);
  const rows = machineRows(states, { opened: nothing });
  const runs = [
    run("c", "pay"),
    run("a", "pay"),
    run("b", null),
    run("d", "pay"),
    run("e", "elsewhere"),
    run("f", "approve", { doing: { type: "set_aside" } }),
  ];
  expect(runDots(rows, runs, 2)).toEqual([
    { runId: "a", row: 1, place: 0, isWrong: false },
    { runId: "b", row: 0, place: 0, isWrong: false },
    { runId: "c", row: 1, place: 1, isWrong: false },
    { runId: "f", row: 2, place: 0, isWrong: true },
  ]);
});
