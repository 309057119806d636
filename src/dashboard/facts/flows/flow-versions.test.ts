import { describe, expect, test } from "vitest";
import type { FlowFacts } from "../../asks/flows.ts";
import { flowVersions, openCounts } from "./flow-versions.ts";

const flow = (workers: readonly (readonly [number, number])[], open: Record<number, number>) =>
  ({
    workers: workers.map(([version, pods]) => ({ version, pods, lastHeartbeatMs: 0 })),
    openByVersion: open,
  }) as unknown as FlowFacts;
const unserved = (of: FlowFacts) =>
  flowVersions(of).flatMap(({ version, isUnserved }) => (isUnserved ? [version] : []));

describe("the versions of a flow", () => {
  test("are those of pods and of runs, the latest first", () => {
    const given = flow(
      [
        [1, 2],
        [3, 1],
      ],
      { 2: 5, 3: 1 },
    );
    expect(flowVersions(given)).toEqual([
      { version: 3, pods: 1, open: 1, isUnserved: false },
      { version: 2, pods: 0, open: 5, isUnserved: false },
      { version: 1, pods: 2, open: 0, isUnserved: false },
    ]);
  });

  test("say which runs no live pod can go on with", () => {
    expect(unserved(flow([[2, 1]], { 1: 1, 2: 1, 3: 4 }))).toEqual([3]);
    expect(unserved(flow([], { 0: 1, 1: 2 }))).toEqual([1, 0]);
    expect(unserved(flow([[1, 1]], { 0: 1 }))).toEqual([]);
  });
});

test("open runs are counted by what they do, wherever they are", () => {
  const places = { start: { ready: 2 }, pay: { ready: 1, setAside: 3 }, $end: { running: 1 } };
  expect(openCounts({ places })).toEqual({
    running: 1,
    ready: 3,
    retrying: 0,
    waiting: 0,
    setAside: 3,
  });
});
