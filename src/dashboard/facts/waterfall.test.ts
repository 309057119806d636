import { describe, expect, test } from "vitest";
import type { TaskEventFacts, TaskFacts } from "../api.ts";
import { waterfallOf } from "./waterfall.ts";

const base = {
  taskId: "t",
  name: "mail",
  createdAtMs: 1_000,
  updatedAtMs: 9_000,
  runAtMs: 1_000,
  failures: 0,
  setAside: null,
};
const task = (more: object) => ({ ...base, ...more }) as unknown as TaskFacts;
const event = (type: string, atMs: number, more: object = {}) =>
  ({ seq: atMs, type, atMs, attempt: 1, podId: "pod-1", detail: null, ...more }) as TaskEventFacts;
const shapes = (found: ReturnType<typeof waterfallOf>) =>
  found.stretches.map(({ kind, fromMs, toMs, outcome }) => [kind, fromMs, toMs, outcome]);

describe("the waterfall of a task", () => {
  test("shows the wait, the attempt and the backoff of each try", () => {
    const events = [
      event("retry", 3_000, { detail: { startedAtMs: 2_000, delayMs: 1_500 } }),
      event("failed", 7_000, { attempt: 2, podId: "pod-2", detail: { startedAtMs: 5_000 } }),
    ];
    const found = waterfallOf(task({ status: "failed", failures: 2 }), events, 20_000);
    expect(shapes(found)).toEqual([
      ["waiting", 1_000, 2_000, undefined],
      ["attempt", 2_000, 3_000, "failed"],
      ["backoff", 3_000, 4_500, undefined],
      ["waiting", 4_500, 5_000, undefined],
      ["attempt", 5_000, 7_000, "failed"],
    ]);
    expect(found).toMatchObject({ fromMs: 1_000, toMs: 7_000 });
    expect(found.stretches[4]).toMatchObject({ podId: "pod-2", attempt: 2 });
  });

  test("shows a claim apart from the attempt where its handler began later", () => {
    const events = [
      event("pod_died", 6_000, { detail: { claimedAtMs: 2_000, startedAtMs: 4_000 } }),
    ];
    const running = {
      status: "claimed",
      claimedBy: "pod-2",
      updatedAtMs: 7_000,
      startedAtMs: 8_000,
    };
    expect(shapes(waterfallOf(task(running), events, 9_000))).toEqual([
      ["waiting", 1_000, 2_000, undefined],
      ["claimed", 2_000, 4_000, undefined],
      ["attempt", 4_000, 6_000, "its pod died"],
      ["waiting", 6_000, 7_000, undefined],
      ["claimed", 7_000, 8_000, undefined],
      ["attempt", 8_000, 9_000, undefined],
    ]);
    const atOnce = { ...running, updatedAtMs: 7_999 };
    expect(shapes(waterfallOf(task(atOnce), [], 9_000))).toEqual([
      ["waiting", 1_000, 8_000, undefined],
      ["attempt", 8_000, 9_000, undefined],
    ]);
  });

  test("joins wait and attempt where a pod hasn't told when it began", () => {
    const found = waterfallOf(task({ status: "completed" }), [], 20_000);
    expect(shapes(found)).toEqual([["waited and ran", 1_000, 9_000, "completed"]]);
    const told = task({ status: "completed", startedAtMs: 8_000 });
    expect(shapes(waterfallOf(told, [], 20_000))).toEqual([
      ["waiting", 1_000, 8_000, undefined],
      ["attempt", 8_000, 9_000, "completed"],
    ]);
  });

  test("goes on to now while the task waits or runs", () => {
    const waits = waterfallOf(task({ status: "pending" }), [], 4_000);
    expect(waits.stretches).toMatchObject([{ kind: "waiting", toMs: 4_000, isOpen: true }]);
    const runs = waterfallOf(
      task({ status: "claimed", claimedBy: "pod-3", startedAtMs: 2_000 }),
      [],
      4_000,
    );
    expect(runs.stretches).toMatchObject([
      { kind: "waiting", toMs: 2_000 },
      { kind: "attempt", toMs: 4_000, isOpen: true, podId: "pod-3" },
    ]);
    const aside = waterfallOf(task({ status: "pending", setAside: {} }), [], 4_000);
    expect(aside.stretches).toMatchObject([{ kind: "set aside", isOpen: true }]);
  });

  test("shows snoozes and deaths, and what happened besides as moments", () => {
    const events = [
      event("snoozed", 2_000, { detail: { delayMs: 1_000 } }),
      event("cancel_requested", 3_500, { podId: null }),
      event("pod_died", 4_000),
    ];
    const found = waterfallOf(task({ status: "pending" }), events, 6_000);
    expect(shapes(found)).toEqual([
      ["waited and ran", 1_000, 2_000, "snoozed"],
      ["snoozed", 2_000, 3_000, undefined],
      ["waited and ran", 3_000, 4_000, "its pod died"],
      ["waiting", 4_000, 6_000, undefined],
    ]);
    expect(found.moments).toEqual([{ atMs: 3_500, what: "cancel requested" }]);
  });

  test("never runs backwards, whatever the clocks of pods say", () => {
    const events = [
      event("retry", 500, { detail: { startedAtMs: 100, delayMs: -5 } }),
      event("failed", 200, { detail: { startedAtMs: 9_999_999 } }),
    ];
    const found = waterfallOf(task({ status: "failed" }), events, 100);
    let before = found.fromMs;
    for (const { fromMs, toMs } of found.stretches) {
      expect(fromMs).toBeGreaterThanOrEqual(before);
      expect(toMs).toBeGreaterThanOrEqual(fromMs);
      before = toMs;
    }
    expect(found.toMs).toBeGreaterThan(found.fromMs);
  });
});
