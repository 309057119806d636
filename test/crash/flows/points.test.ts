import { describe, expect, test } from "vitest";
import { endsOf, misfolded } from "./ends.ts";
import { approveAll, cleanEnds, createFlowFleet, fleetMs } from "./fleet.ts";
import { scenarioOf } from "./machines.ts";
import { differences, notAt, notReached, pointsOf, runAgain } from "./points.ts";
import { readReports } from "./reports.ts";
import { storeKinds } from "../harness.ts";
import { until } from "../until.ts";

describe.each(storeKinds)("on %s, runs of every kind", (on) => {
  test(
    "that are killed once, at any point, end as if nothing had happened",
    async () => {
      const fleet = await createFlowFleet(on);
      const clean = await cleanEnds(fleet);
      const points = pointsOf(readReports(fleet.folder));
      expect(points.length).toBeGreaterThan(200);
      await Promise.all(points.map(({ label, key }) => fleet.begin(label, [scenarioOf(key)])));
      const stops = Object.fromEntries(points.map(({ key, stop }) => [key, stop]));
      const first = await fleet.startFlows({ stops });
      const before = await fleet.quiet(first);
      // A run's last write may be committed, and its answer on the way.
      await until(
        "each run has stopped at its point",
        () => notReached(points, readReports(fleet.folder)).length === 0,
      );
      await first.kill();

      // Each was stopped where it was to be: so many of its events are stored, and no more.
      expect(points.flatMap((point) => notAt(point, before, clean))).toEqual([]);
      expect(misfolded(before)).toEqual([]);

      await approveAll(fleet, before);
      const second = await fleet.startFlows();
      const after = await fleet.allEnded();
      const ends = endsOf(fleet, after);
      expect(points.flatMap((point) => differences(point, ends, clean))).toEqual([]);
      expect(runAgain(readReports(fleet.folder), before, second.podId)).toEqual([]);
      expect(misfolded(after)).toEqual([]);
    },
    fleetMs,
  );
});
