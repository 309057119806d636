import { describe, expect, test } from "vitest";
import type { PodPulse } from "../../pods/pulse.ts";
import { type DescribedPod, describePod, summarizeFleet } from "./summary.ts";

const nowMs = 1_800_000_000_000;
const hourMs = 3_600_000;
const pulse: PodPulse = {
  claimed: 9_000,
  ended: { completed: 8_000 },
  chunks: 70,
  lagMs: 3,
  memoryBytes: 90_000_000,
  held: 20,
  leadsSinceMs: null,
  throttles: [{ name: "openai", key: "", inFlight: 4 }],
  running: [1, 2, 3].map((at) => ({ taskId: `task-${at}`, startedAtMs: nowMs - at })),
  logs: [],
};
const usual = { host: "web-1", pid: 12, holds: 80, names: ["mail"] };
type Given = Partial<DescribedPod> & { metadata?: Record<string, unknown> };
const pod = (podId: string, { metadata = usual, ...more }: Given = {}): DescribedPod => ({
  podId,
  status: "up",
  birthMs: 1,
  lastHeartbeatMs: nowMs,
  drains: false,
  state: null,
  pulse,
  description: describePod(metadata),
  logs: [],
  ...more,
});
const down = (podId: string, agoMs: number): DescribedPod =>
  pod(podId, { status: "down", lastHeartbeatMs: nowMs - agoMs });
const idsOf = (pods: readonly { podId: string }[]) => pods.map(({ podId }) => podId);

describe("the pods of a fleet in brief", () => {
  test("are those that are up, the oldest first, and those that went down within the hour", () => {
    const fleet = summarizeFleet(
      [
        down("left", 60_000),
        pod("young", { birthMs: 9 }),
        down("gone", hourMs),
        pod("old", { birthMs: 2, lastHeartbeatMs: nowMs - 400 }),
        down("just left", 1_000),
      ],
      nowMs,
    );
    expect(idsOf(fleet.pods)).toEqual(["old", "young", "just left", "left"]);
    expect(fleet).toMatchObject({ newestBeatMs: nowMs, gone: 1, more: 0 });
    expect(fleet.pods[0]).toMatchObject({ lastHeartbeatMs: null, host: "web-1", pid: 12 });
    expect(fleet.pods[2]).toMatchObject({ lastHeartbeatMs: nowMs - 1_000, pulse: null });
    expect(summarizeFleet([], nowMs)).toMatchObject({ pods: [], newestBeatMs: null });
  });

  test("have what pages show of a pulse, and nothing that changes with every beat", () => {
    const busier = { ...pulse, claimed: 9_001, ended: { completed: 8_001 } };
    const later = { lastHeartbeatMs: nowMs + 1_000 };
    const [before, after] = [pod("a"), pod("a", { ...later, pulse: busier })].map(
      (each) => summarizeFleet([each], nowMs).pods,
    );
    expect(after).toEqual(before);
    expect(before![0]!.pulse).toEqual({
      lagMs: 3,
      memoryBytes: 90_000_000,
      held: 20,
      throttles: pulse.throttles,
      running: [pulse.running[0]],
      logs: [],
    });
  });

  test("have their handlers once for all that have the same, whatever a row holds", () => {
    const names = ["mail", "order", "__proto__", 3];
    const metadata = { names, versions: { mail: 2 }, flows: { order: 7 } };
    const { pods, handlers } = summarizeFleet(
      [
        pod("a", { metadata }),
        pod("b", { metadata: { host: "other", ...metadata } }),
        pod("c", { metadata: { names: ["mail"] } }),
        pod("d", { metadata: { names: "mail", versions: null, host: 7, pid: "x" } }),
      ],
      nowMs,
    );
    const [a, b, c, d] = pods;
    expect([b!.handlers, c!.handlers === a!.handlers]).toEqual([a!.handlers, false]);
    expect(handlers[a!.handlers!]).toEqual({
      names: [
        { name: "mail", version: "2" },
        { name: "order", version: "7" },
        { name: "__proto__", version: null },
      ],
      more: 0,
    });
    expect(Object.keys(handlers)).toHaveLength(2);
    expect(d).toMatchObject({ handlers: null, host: null, pid: null, holds: null });
  });

  test("fit into a topic, five hundred of them with five hundred handlers of their own each", () => {
    const pods = Array.from({ length: 500 }, (_, at) =>
      pod(`01980f6a-3c1e-7a51-8d0c-6d1f1d9a${String(at).padStart(4, "0")}`, {
        metadata: {
          host: `worker-${at}.eu-central.example.internal`,
          pid: 1_000 + at,
          holds: 80,
          names: Array.from({ length: 500 }, (__, name) => `team-${at}/task-number-${name}`),
        },
      }),
    );
    const fleet = summarizeFleet(pods, nowMs);
    expect(fleet.pods).toHaveLength(500);
    expect(Buffer.byteLength(JSON.stringify(fleet))).toBeLessThan(1024 ** 2);
    for (const { names, more } of Object.values(fleet.handlers)) {
      expect(names.length).toBeGreaterThan(5);
      expect(names.length + more).toBe(500);
    }
  });

  test("are a thousand at most, those that are up first, and say how many are left out", () => {
    const up = Array.from({ length: 900 }, (_, at) => pod(`up-${at}`));
    const lately = Array.from({ length: 300 }, (_, at) => down(`down-${at}`, at));
    const { pods, more } = summarizeFleet([...lately, ...up], nowMs);
    expect(pods.filter(({ status }) => status === "up")).toHaveLength(900);
    expect([pods.length, more, pods.at(-1)!.podId]).toEqual([1_000, 200, "down-99"]);
  });
});
