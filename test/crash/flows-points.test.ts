import { describe, expect, test } from "vitest";
import { type End, endsOf, misfolded } from "./flows-ends.ts";
import { approveAll, createFlowFleet, fleetMs, type FlowFleet } from "./flows-fleet.ts";
import { scenarioOf, scenarios } from "./flows-machines.ts";
import { differences, notAt, notReached, pointsOf, runAgain } from "./flows-points.ts";
import { readSaid } from "./flows-said.ts";
import { storeKinds } from "./harness.ts";

const roundsMost = 40;

describe.each(storeKinds)("on %s, runs of every kind", (on) => {
  test(
    "that are killed once, at any point, end as if nothing had happened",
    async () => {
      const fleet = await createFlowFleet(on);
      const clean = await cleanEnds(fleet);
      const points = pointsOf(readSaid(fleet.folder));
      expect(points.length).toBeGreaterThan(200);
      await Promise.all(points.map(({ label, key }) => fleet.begin(label, [scenarioOf(key)])));
      const stops = Object.fromEntries(points.map(({ key, stop }) => [key, stop]));
      const first = await fleet.startFlows({ stops });
      const before = await fleet.quiet(first);
      await first.kill();

      expect(notReached(points, readSaid(fleet.folder))).toEqual([]);
      // Each was stopped where it was to be: so many of its events are stored, and no more.
      expect(points.flatMap((point) => notAt(point, before, clean))).toEqual([]);
      expect(misfolded(before)).toEqual([]);

      await approveAll(fleet, before);
      const second = await fleet.startFlows();
      const after = await fleet.allEnded();
      const ends = endsOf(fleet, after);
      expect(points.flatMap((point) => differences(point, ends, clean))).toEqual([]);
      expect(runAgain(readSaid(fleet.folder), before, second.podId)).toEqual([]);
      expect(misfolded(after)).toEqual([]);
    },
    fleetMs,
  );

  // What a kill leaves in the store is compared above, on each. How often functions run is the pod's doing.
  test.runIf(on === "sqlite")(
    "that are killed after every single write run each function as often as where nothing happens",
    async () => {
      const fleet = await createFlowFleet(on);
      const clean = await cleanEnds(fleet, 1);
      await fleet.begin("every", scenarios, 1);
      let rounds = 0;
      for (let isOpen = true; isOpen && rounds < roundsMost; rounds++) {
        const pod = await fleet.startFlows({ others: { at: "after write", nth: 1 } });
        const runs = await fleet.quiet(pod);
        await pod.kill();
        expect(misfolded(runs)).toEqual([]);
        await approveAll(fleet, runs);
        isOpen = await fleet.anyOpen();
      }
      expect(rounds).toBeGreaterThan(8);
      const ends = endsOf(fleet, await fleet.runs());
      const label = "every";
      const stop = { at: "after write", nth: 1 } as const;
      const keys = scenarios.map((scenario) => `${label}/${scenario}`);
      expect(keys.flatMap((key) => differences({ label, key, stop }, ends, clean))).toEqual([]);
    },
    fleetMs,
  );
});

/** How runs end that nobody disturbs. */
async function cleanEnds(fleet: FlowFleet, failures?: number): Promise<Map<string, End>> {
  await fleet.begin("clean", scenarios, failures);
  const pod = await fleet.startFlows();
  const runs = await fleet.allEnded();
  await pod.terminate();
  return endsOf(fleet, runs);
}
