import { describe, expect, test } from "vitest";
import type { ShownPod } from "./fleet.ts";
import { drainText, podsToShow, podStanding, totalsOf } from "./pods.ts";

const nowMs = 1_763_414_400_000;
const pulse = { held: 3, lagMs: 4, memoryBytes: 1_000, throttles: [], running: [] };
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
