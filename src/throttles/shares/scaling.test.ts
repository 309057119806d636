import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import { memoryKind } from "../../store/contract/kinds.ts";
import { closeFleets, type Fleet, type FleetPod, openFleet } from "../contract/shares-fleet.ts";

const second = 1_000;
let fleet: Fleet;
beforeEach(async () => {
  fleet = await openFleet(memoryKind);
});
afterEach(() => fleet.close());
afterAll(closeFleets);

test("two pods or eight, the same number of calls is in flight", async () => {
  const pods: FleetPod[] = [];
  const join = (podId: string) => {
    const pod = fleet.join(podId);
    pods.push(pod);
    // So much that there is always more to do than all may.
    pod.ask(500);
  };
  const heldByAll = () => pods.reduce((sum, pod) => sum + pod.held, 0);
  /** Calls end, so that shares can move. */
  const work = async (seconds: number) => {
    for (let nth = 0; nth < seconds * 4; nth++) {
      for (const { permits } of pods) {
        for (const permit of permits.splice(0)) permit.release("success");
      }
      await fleet.pass(second / 4);
      expect(heldByAll()).toBeLessThanOrEqual(8);
    }
  };
  join("a");
  join("b");
  await work(6);
  expect(pods.map(({ held }) => held)).toEqual([4, 4]);
  for (const podId of ["c", "d", "e", "f", "g", "h"]) join(podId);
  await work(12);
  expect(pods.map(({ held }) => held)).toEqual([1, 1, 1, 1, 1, 1, 1, 1]);
});
