import { describe, expect, test } from "vitest";
import type { RunEventFacts, RunFacts } from "../../asks/flows.ts";
import { childStretches, runAxisOf } from "./run-axis.ts";

const run = (more: Partial<RunFacts> = {}) =>
  ({
    runId: "r",
    flow: "order",
    at: null,
    attempt: 1,
    status: "completed",
    doing: null,
    createdAtMs: 1_000,
    updatedAtMs: 9_000,
    ...more,
  }) as RunFacts;

let seq = 0;
const event = (type: string, atMs: number, more: Partial<RunEventFacts> = {}): RunEventFacts => ({
  seq: ++seq,
  atMs,
  type,
  attempt: null,
  podId: "pod-1",
  transition: null,
  startedAtMs: null,
  detail: null,
  ...more,
});
const axis = (
  of: RunFacts,
  history: readonly RunEventFacts[],
  more: { nowMs?: number; isFromStart?: boolean; isToEnd?: boolean } = {},
) => runAxisOf({ run: of, history, isFromStart: true, isToEnd: true, nowMs: 10_000, ...more });
const lines = ({ stretches }: ReturnType<typeof axis>) =>
  stretches.map(
    ({ kind, transition, fromMs, toMs, outcome, isOpen }) =>
      `${transition ?? "-"} ${kind} ${fromMs}-${toMs}${outcome === undefined ? "" : ` ${outcome}`}${isOpen ? " open" : ""}`,
  );

describe("the axis of a run", () => {
  test("has the wait before it began, attempts, backoff, sleeps and signals", () => {
    const found = axis(run(), [
      event("start", 1_500),
      event("error", 2_000, {
        transition: "pay",
        attempt: 1,
        startedAtMs: 1_500,
        detail: { retryAtMs: 3_000 },
      }),
      event("complete", 4_000, { transition: "pay", attempt: 2, startedAtMs: 3_500 }),
      event("park", 4_010, {
        transition: "cool",
        detail: { waiting: { for: "sleep", sinceMs: 4_005, untilMs: 6_000 }, untilMs: 6_000 },
      }),
      event("complete", 6_020, { transition: "cool", attempt: 1, startedAtMs: 4_005 }),
      event("park", 6_030, {
        transition: "approve",
        detail: { waiting: { for: "signal", sinceMs: 6_030, untilMs: null }, untilMs: null },
      }),
      // Woken by another signal than the one that it waits for.
      event("park", 7_000, {
        transition: "approve",
        detail: { waiting: { for: "signal", sinceMs: 6_030, untilMs: null }, untilMs: null },
      }),
      event("complete", 8_000, { transition: "approve", attempt: 1, startedAtMs: 6_030 }),
      event("complete", 8_000, { transition: "$end", attempt: 1, startedAtMs: 8_000 }),
      event("finish", 8_001, { detail: { status: "completed" } }),
    ]);
    expect(lines(found)).toEqual([
      "- queued 1000-1500",
      "pay attempt 1500-2000 failed",
      "pay backoff 2000-3000",
      "pay ready 3000-3500",
      "pay attempt 3500-4000 completed",
      "cool sleep 4005-6020 completed",
      "approve signal 6030-8000 completed",
    ]);
    expect(found.moments).toEqual([{ atMs: 8_001, what: "ended: completed" }]);
    expect(found).toMatchObject({ fromMs: 1_000, toMs: 8_001 });
  });

  test("ends with what an open run does now", () => {
    const begun = [event("start", 1_500)];
    const doing = (given: RunFacts["doing"]) =>
      lines(axis(run({ status: "open", at: "pay", attempt: 2, doing: given }), begun)).at(-1);
    expect(doing({ type: "running", podId: "pod-2", sinceMs: 4_000 })).toBe(
      "pay attempt 4000-10000 open",
    );
    expect(doing({ type: "ready" })).toBe("pay ready 1500-10000 open");
    expect(doing({ type: "sleeping", sinceMs: 2_000, untilMs: 90_000 })).toBe(
      "pay sleep 1500-10000 open",
    );
    expect(doing({ type: "waiting_for_room", scope: null })).toBe("pay limit 1500-10000 open");
    const waiting = { type: "waiting_for_signal", name: "pay", sinceMs: 1_600, untilMs: null };
    expect(doing(waiting as RunFacts["doing"])).toBe("pay signal 1500-10000 open");
    expect(lines(axis(run({ status: "open", doing: { type: "ready" } }), []))).toEqual([
      "- queued 1000-10000 open",
    ]);
  });

  test("goes on with a wait that was stored, and says until when it lasts", () => {
    const history = [
      event("start", 1_500),
      event("error", 2_000, {
        transition: "pay",
        attempt: 1,
        startedAtMs: 1_500,
        detail: { retryAtMs: 20_000 },
      }),
    ];
    const open = run({ status: "open", at: "pay", doing: { type: "retrying", atMs: 20_000 } });
    expect(axis(open, history).stretches.at(-1)).toMatchObject({
      kind: "backoff",
      fromMs: 2_000,
      toMs: 10_000,
      isOpen: true,
      untilMs: 20_000,
    });
  });

  test("shows deaths, being set aside, and what was started over", () => {
    const found = axis(run({ status: "failed" }), [
      event("start", 1_500),
      event("pod_died", 3_000, { podId: "pod-9" }),
      event("set_aside", 3_500),
      event("resume", 5_000),
      event("complete", 5_500, { transition: "pay", attempt: 1, startedAtMs: 5_200 }),
      event("move", 5_600, { detail: { from: "ship", next: "send", why: "renamed" } }),
      event("cancel", 6_000, { transition: "send" }),
      event("finish", 6_100, { detail: { status: "cancelled" } }),
      event("retried", 8_000),
    ]);
    expect(lines(found)).toEqual([
      "- queued 1000-1500",
      "- waited and ran 1500-3000 its pod died",
      "- set aside 3500-5000",
      "pay ready 5000-5200",
      "pay attempt 5200-5500 completed",
      "- ended 6100-8000",
    ]);
    expect(found.moments.map(({ what }) => what)).toEqual([
      "resume",
      "moved from ship to send",
      "cancelled",
      "ended: cancelled",
      "started over",
    ]);
  });

  test("of a snooze has the attempt and the time until it goes on", () => {
    const found = axis(run(), [
      event("start", 1_500),
      event("park", 2_000, { transition: "pay", detail: { waiting: null, untilMs: 4_000 } }),
      event("complete", 4_500, { transition: "pay", attempt: 1, startedAtMs: 4_050 }),
    ]);
    expect(lines(found).slice(1)).toEqual([
      "pay waited and ran 1500-2000 snoozed",
      "pay snoozed 2000-4000",
      "pay attempt 4000-4500 completed",
    ]);
  });

  test("of a page in the middle begins with its first event, and leaves out what is now", () => {
    const open = run({ status: "open", at: "ship", doing: { type: "ready" } });
    const found = axis(
      open,
      [event("complete", 5_000, { transition: "pay", attempt: 1, startedAtMs: 4_000 })],
      { isFromStart: false, isToEnd: false },
    );
    expect(lines(found)).toEqual(["pay attempt 4000-5000 completed"]);
    expect(found.fromMs).toBe(4_000);
  });

  test("never runs backwards, and reads events of any shape", () => {
    const found = axis(run(), [
      event("start", 500),
      event("complete", 400, { transition: "pay", attempt: 1, startedAtMs: 300 }),
      event("park", 200, { transition: "x", detail: "a shape" }),
      event("error", 100, { transition: "constructor", detail: [1] }),
      event("__proto__", 50),
    ]);
    const times = found.stretches.flatMap(({ fromMs, toMs }) => [fromMs, toMs]);
    expect(times).toEqual(times.toSorted((one, other) => one - other));
  });

  test("draws as many events as a page has in one go", () => {
    const history = Array.from({ length: 50_000 }, (_, at) =>
      event("complete", 1_000 + at, { transition: "pay", attempt: 1, startedAtMs: 1_000 + at }),
    );
    expect(axis(run(), history).stretches).toHaveLength(50_000);
  });
});

test("children are on the axis from when they were started until they ended", () => {
  const open = run({ runId: "b", createdAtMs: 3_000, status: "open" });
  const ended = run({ runId: "a", createdAtMs: 2_000, updatedAtMs: 4_000 });
  expect(
    childStretches([open, ended], 10_000).map(({ run: { runId }, fromMs, toMs }) => [
      runId,
      fromMs,
      toMs,
    ]),
  ).toEqual([
    ["a", 2_000, 4_000],
    ["b", 3_000, 10_000],
  ]);
});
