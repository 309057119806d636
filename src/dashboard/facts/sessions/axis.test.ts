import fc from "fast-check";
import { describe, expect, test } from "vitest";
import type { Entry, SessionState } from "../../../protocol/message.ts";
import type { StartedFacts, TurnFacts } from "../../asks/sessions.ts";
import {
  axisFacts,
  axisOf,
  type AxisParts,
  type AxisRow,
  costText,
  maxAxisRows,
  spentOn,
  type TurnRow,
} from "./axis.ts";

const entry = (seq: number, atMs: number, more: Partial<Entry> = {}): Entry => ({
  seq,
  kind: "message",
  role: "user",
  author: "ada",
  messageId: `m${seq}`,
  tokens: 1,
  parts: [],
  atMs,
  ...more,
});
const answer = (seq: number, atMs: number, more: Partial<Entry> = {}): Entry =>
  entry(seq, atMs, {
    role: "assistant",
    author: "helper",
    outcome: "completed",
    ...more,
  });
const turn = (epoch: number, more: Partial<TurnFacts> = {}): TurnFacts => ({
  epoch,
  attempt: 1,
  agent: "helper",
  podId: "pod-1",
  beganAtMs: 2_000,
  firstChunkAtMs: 3_000,
  endedAtMs: 5_000,
  outcome: "completed",
  usage: null,
  ...more,
});
const axis = (parts: Partial<AxisParts> & { entries?: readonly Entry[] }) =>
  axisOf({
    facts: axisFacts(parts.entries ?? []),
    turns: [],
    started: [],
    state: undefined,
    throttledMs: new Map(),
    firstSeenAtMs: new Map(),
    nowMs: 10_000,
    ...parts,
  }).rows;
const shapes = (row: AxisRow | undefined) =>
  (row as TurnRow).stretches.map(({ kind, fromMs, toMs, isOpen }) => [
    kind,
    fromMs,
    toMs,
    ...(isOpen ? ["open"] : []),
  ]);

/** What is wrong with rows, the oldest first. */
function faultsIn(rows: readonly AxisRow[]): string[] {
  const faults: string[] = [];
  const check = (isRight: boolean, fault: string) => void (isRight || faults.push(fault));
  let before: AxisRow | undefined;
  let turnBefore: TurnRow | undefined;
  let coveredMs = -Infinity;
  for (const row of rows) {
    check(before === undefined || row.fromMs >= before.fromMs, `${row.key} is out of order`);
    check(row.toMs >= row.fromMs, `${row.key} ends before it begins`);
    check(row.type !== "gap" || row.fromMs >= coveredMs, `${row.key} is no gap`);
    if (row.type === "turn") {
      const { epoch, attempt } = row.turn;
      const last = turnBefore?.turn ?? { epoch: 0, attempt: 0 };
      check(row.fromMs >= (turnBefore?.toMs ?? -Infinity), `${row.key} overlaps`);
      check(epoch > last.epoch || attempt > last.attempt, `${row.key} is before its number`);
      let atMs = row.fromMs;
      for (const stretch of row.stretches) {
        check(stretch.fromMs === atMs && stretch.toMs >= atMs, `${row.key} has a hole`);
        atMs = stretch.toMs;
      }
      check(atMs === row.toMs, `${row.key} isn't whole`);
      turnBefore = row;
    }
    before = row;
    coveredMs = Math.max(coveredMs, row.toMs);
  }
  return faults;
}

describe("the axis of a session", () => {
  test("has of each turn what it waited for, since its message was written", () => {
    const entries = [
      entry(1, 1_000),
      answer(2, 5_000, { epoch: 1, upToSeq: 1 }),
      // Written during the answer, and answered by the next turn.
      entry(3, 6_000),
      entry(4, 6_500),
      answer(5, 9_000, { epoch: 2, upToSeq: 4 }),
    ];
    const turns = [turn(2, { beganAtMs: 7_000, firstChunkAtMs: 8_500, endedAtMs: 9_000 }), turn(1)];
    const rows = axis({ entries, turns, throttledMs: new Map([["2.1", 1_000]]) });
    expect(rows.map(({ key }) => key)).toEqual(["turn 2.1", "turn 1.1"]);
    expect(shapes(rows[1])).toEqual([
      ["queued", 1_000, 2_000],
      ["first token", 2_000, 3_000],
      ["stream", 3_000, 5_000],
    ]);
    expect(shapes(rows[0])).toEqual([
      ["queued", 6_000, 7_000],
      ["throttled", 7_000, 8_000],
      ["first token", 8_000, 8_500],
      ["stream", 8_500, 9_000],
    ]);
  });

  test("goes on to now while a turn does: queued, throttled, thinking or streaming", () => {
    const under = turn(1, { firstChunkAtMs: null, endedAtMs: null, outcome: null });
    const state = (name: "waiting" | "catching_up"): SessionState => ({
      state: name,
      epoch: 1,
      attempt: 1,
      agent: "helper",
      messageId: "a",
      upToSeq: 1,
      stopping: false,
    });
    const entries = [entry(1, 1_500)];
    const waits = axis({ entries, turns: [under], state: state("waiting") });
    expect(shapes(waits[0])).toEqual([
      ["queued", 1_500, 2_000],
      ["throttled", 2_000, 10_000, "open"],
    ]);
    const thinks = axis({ turns: [under], state: state("catching_up") });
    expect(shapes(thinks[0])).toEqual([["first token", 2_000, 10_000, "open"]]);
    const firstSeenAtMs = new Map([["1.1", 4_000]]);
    const streams = axis({ turns: [under], state: state("catching_up"), firstSeenAtMs });
    expect(shapes(streams[0])).toEqual([
      ["first token", 2_000, 4_000],
      ["stream", 4_000, 10_000, "open"],
    ]);
  });

  test("shows that another pod took a turn over", () => {
    const turns = [
      turn(1, {
        attempt: 2,
        podId: "pod-2",
        beganAtMs: 6_000,
        firstChunkAtMs: 7_000,
        endedAtMs: 8_000,
      }),
      turn(1, { outcome: "lost", firstChunkAtMs: null }),
    ];
    const [second, first] = axis({ turns }) as TurnRow[];
    expect(first!.tookOverFrom).toBeUndefined();
    expect(second!.tookOverFrom).toBe("pod-1");
    expect(shapes(second)[0]).toEqual(["queued", 5_000, 6_000]);
  });

  test("shows calls that wait for a person, with who decided, and what was started", () => {
    const order = { type: "tool-order", toolCallId: "c1", state: "approval-requested" };
    const asks = answer(2, 5_000, { epoch: 1, upToSeq: 1, messageId: "a", parts: [order] });
    const decided = entry(3, 8_000, {
      kind: "tool_result",
      author: "bob",
      results: { messageId: "a", results: [{ toolCallId: "c1", approved: false }] },
    });
    const started: StartedFacts = {
      taskId: "t1",
      what: "session",
      name: "brew",
      status: "pending",
      tenant: "default",
      atMs: 4_000,
    };
    const open = axis({ entries: [entry(1, 1_000), asks], turns: [turn(1)], started: [started] });
    expect(open).toMatchObject([
      { type: "wait", tool: "order", fromMs: 5_000, toMs: 10_000, isOpen: true },
      { type: "started", fromMs: 4_000 },
      { type: "turn", tools: ["order"] },
    ]);
    const continued = answer(4, 9_500, {
      epoch: 2,
      messageId: "a",
      replaces: 2,
      parts: [{ ...order, state: "output-denied" }],
    });
    const entries = [entry(1, 1_000), asks, decided, continued];
    const turns = [turn(1), turn(2, { beganAtMs: 8_200, firstChunkAtMs: null, endedAtMs: 9_500 })];
    const rows = axis({ entries, turns });
    expect(rows.find(({ type }) => type === "wait")).toMatchObject({
      toMs: 8_000,
      isOpen: false,
      outcome: "denied",
      by: "bob",
    });
    // The turn that goes on with the decision was asked for by it.
    expect(shapes(rows[0])[0]).toEqual(["queued", 8_000, 8_200]);
    const without = axis({ entries: [entry(1, 1_000), asks, continued], turns });
    expect(without.find(({ type }) => type === "wait")).toMatchObject({ outcome: "over" });
  });

  test("shows stops and summaries, and where nothing went on for long", () => {
    const hour = 3_600_000;
    const stop = { epoch: 1, messageId: "a", by: "user" } as const;
    const entries = [
      entry(1, 1_000, { kind: "stop", author: "eve", stop }),
      entry(2, hour, { kind: "summary", role: "system" }),
    ];
    expect(axis({ entries, nowMs: hour })).toMatchObject([
      { type: "summary" },
      { type: "gap", fromMs: 1_000, toMs: hour },
      { type: "stop", by: "eve" },
    ]);
  });

  test("keeps the newest rows of a session with very many turns", () => {
    const turns = Array.from({ length: 400 }, (_, at) =>
      turn(at + 1, { beganAtMs: at * 10, firstChunkAtMs: null, endedAtMs: at * 10 + 5 }),
    );
    const facts = axisFacts([]);
    const nothing = new Map<string, number>();
    const parts = { started: [], state: undefined, throttledMs: nothing, firstSeenAtMs: nothing };
    const found = axisOf({ facts, turns, ...parts, nowMs: 9_999 });
    expect(found.isCut).toBe(true);
    expect(found.rows).toHaveLength(maxAxisRows);
    expect(found.rows[0]).toMatchObject({ turn: { epoch: 400 } });
  });

  test("runs in one direction and without overlaps, whatever the clocks say", () => {
    const time = fc.integer({ min: 0, max: 10_000_000 });
    const attempts = fc.array(
      fc.record({
        epoch: fc.integer({ min: 1, max: 6 }),
        attempt: fc.integer({ min: 1, max: 3 }),
        beganAtMs: time,
        firstChunkAtMs: fc.option(time),
        endedAtMs: fc.option(time),
      }),
      { maxLength: 12 },
    );
    const log = fc.array(fc.record({ atMs: time, isAnswer: fc.boolean(), epoch: fc.nat(6) }), {
      maxLength: 20,
    });
    fc.assert(
      fc.property(attempts, log, time, time, (found, said, nowMs, waitedMs) => {
        const entries = said.map(({ atMs, isAnswer, epoch }, at) =>
          isAnswer ? answer(at + 1, atMs, { epoch, upToSeq: at }) : entry(at + 1, atMs),
        );
        const unique = new Map(found.map((each) => [`${each.epoch}.${each.attempt}`, each]));
        const turns = [...unique.values()].map((each) => turn(each.epoch, each));
        const throttledMs = new Map([...unique.keys()].map((key) => [key, waitedMs]));
        const rows = axis({ entries, turns, nowMs, throttledMs }).toReversed();
        expect(faultsIn(rows)).toEqual([]);
      }),
    );
  });
});

describe("what turns cost", () => {
  const usage = (cost: number | null) => ({ input: 10, output: 2, cached: 0, model: "m", cost });
  test("is added up, and is unknown where one price is", () => {
    const turns = [turn(1, { usage: usage(0.5) }), turn(2), turn(3, { usage: usage(0.25) })];
    expect(spentOn(turns)).toEqual({ input: 20, output: 4, cost: 0.75 });
    expect(spentOn([...turns, turn(4, { usage: usage(null) })]).cost).toBeUndefined();
    expect(spentOn([turn(1)])).toEqual({ input: 0, output: 0, cost: undefined });
  });

  test("is written with as many digits as matter", () => {
    expect([0, 12.346, 0.75, 0.00421].map(costText)).toEqual(["0", "12.35", "0.75", "0.0042"]);
  });
});
