import { describe, expect, test } from "vitest";
import type { ShownPod } from "./fleet.ts";
import { backlogText, drainText, logsBehind, podsToShow, podStanding, totalsOf } from "./pods.ts";

const nowMs = 1_763_414_400_000;
const pulse = { held: 3, lagMs: 4, memoryBytes: 1_000, throttles: [], running: [], logs: [] };
const pod = (podId: string, more: object = {}) =>
  ({
    podId,
    status: "up",
    birthMs: 1,
    lastHeartbeatMs: nowMs,
    drain: null,
    state: { holds: 10, reasons: [] },
    pulse,
    host: "Web-1",
    handlers: { names: [{ name: "mail", version: null }], more: 0 },
    logs: [],
    ...more,
  }) as unknown as ShownPod;

describe("pods", () => {
  test("are up, draining, drained or down", () => {
    const words = [
      pod("a"),
      pod("a", { drain: "draining" }),
      pod("a", { drain: "drained" }),
      pod("a", { status: "down", drain: "drained" }),
    ].map((each) => podStanding(each).word);
    expect(words).toEqual(["up", "draining", "drained", "down"]);
  });

  test("that drain say what they have left", () => {
    const draining = (more: object) =>
      drainText(pod("a", { drain: "draining", state: { holds: 0, drain: "draining" }, ...more }));
    expect(drainText(pod("a"))).toBeUndefined();
    expect(draining({ state: { holds: 10 } })).toBe("told with its next heartbeat");
    expect(draining({ logs: [1, 2] })).toBe("3 tasks and 2 session logs left");
    expect(draining({ pulse: { ...pulse, held: 1 } })).toBe("1 task left");
    expect(draining({ pulse: null, logs: [] })).toBe("nearly done");
    expect(drainText(pod("a", { drain: "drained" }))).toBe("nothing is left: it can be stopped");
  });

  test("are shown oldest first, those that are down last, and not for longer than an hour", () => {
    const all = [
      pod("young", { birthMs: 9 }),
      pod("old", { birthMs: 2 }),
      pod("gone", { status: "down", lastHeartbeatMs: nowMs - 3_600_001 }),
      pod("left", { status: "down", lastHeartbeatMs: nowMs - 60_000 }),
    ];
    const { shown, gone } = podsToShow(all, { nowMs });
    expect(shown.map(({ podId }) => podId)).toEqual(["old", "young", "left"]);
    expect(gone).toBe(1);
  });

  test("are found by id, host and name of a task", () => {
    const reports = { names: [{ name: "Report", version: "2" }], more: 0 };
    const all = [
      pod("a1"),
      pod("b2", { host: null, handlers: reports }),
      pod("c", { handlers: undefined }),
    ];
    const found = (find: string) =>
      podsToShow(all, { find, nowMs }).shown.map((each) => each.podId);
    expect(found("B2")).toEqual(["b2"]);
    expect(found("web")).toEqual(["a1", "c"]);
    expect(found("report")).toEqual(["b2"]);
    expect(found("nothing")).toEqual([]);
  });

  test("are found by a link that has the whole id, however long they have been gone", () => {
    const all = [pod("a1"), pod("b2", { status: "down", lastHeartbeatMs: 1 })];
    const found = (find: string) =>
      podsToShow(all, { find, nowMs }).shown.map((each) => each.podId);
    expect(found("b2")).toEqual(["b2"]);
    expect(found("2")).toEqual([]);
  });

  test("name the logs that the database is behind, the one that has waited for longest first", () => {
    const behind = (...logs: readonly (readonly [number, number])[]) => ({
      ...pulse,
      logs: logs.map(([logId, lagMs]) => ({ logId, bytes: 2_048, lagMs })),
    });
    const all = [
      pod("a", { logs: [1, 2], pulse: behind([1, 300], [2, 100]) }),
      // It said so of log 9 before another pod took it.
      pod("b", { logs: [4], pulse: behind([4, 6_000], [9, 9_000]) }),
      pod("c", { logs: [5], status: "down", pulse: behind([5, 9_000]) }),
    ];
    expect([...logsBehind(all).values()]).toEqual([
      { logId: 4, podId: "b", bytes: 2_048, lagMs: 6_000, isLate: true },
      { logId: 1, podId: "a", bytes: 2_048, lagMs: 300, isLate: false },
      { logId: 2, podId: "a", bytes: 2_048, lagMs: 100, isLate: false },
    ]);
    expect(backlogText({ bytes: 2_048, lagMs: 6_000 })).toBe(
      "2.0 KiB not in the database for 6.0 s",
    );
  });

  test("are summed up as far as they are up and have said something", () => {
    const all = [
      pod("a"),
      pod("b", { pulse: { ...pulse, lagMs: 90 } }),
      pod("c", { pulse: null, state: null, holds: 7 }),
      pod("d", { status: "down" }),
    ];
    expect(totalsOf(all)).toEqual({ up: 3, held: 6, holds: 27, lagMs: 90, memoryBytes: 2_000 });
  });
});
