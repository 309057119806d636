import { expect, test } from "vitest";
import { endsOf, misfolded } from "./ends.ts";
import { approveAll, cleanEnds, createFlowFleet, fleetMs } from "./fleet.ts";
import { scenarios } from "./machines.ts";
import { differences } from "./points.ts";

const roundsMost = 40;

// What a kill leaves in a store is compared on each elsewhere. How often functions run is the pod's doing.
test(
  "on sqlite, runs of every kind that are killed after every single write run each function as often as where nothing happens",
  async () => {
    const fleet = await createFlowFleet("sqlite");
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
