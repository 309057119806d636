import { describe, expect, test } from "vitest";
import { seededRandom } from "../../../src/base/random.ts";
import { createFleet, storeKinds } from "../harness.ts";
import { agentsOn, fleetMs } from "./agents.ts";
import { agentViolations } from "./checkers.ts";
import { killAtAnyMoment, killAtEveryPlace, openEvidence } from "./faults.ts";

// `npm run soak -- --of agents` has more: two kills, pauses, deploys, and a server that is killed.
describe.each(storeKinds)("on %s, durable agents", (on) => {
  test(
    "that are killed once, at any place, say what they would have said, and pay for nothing twice",
    async () => {
      const gathering = await openEvidence(agentsOn(await createFleet({ on })));
      expect(gathering.places.length).toBeGreaterThan(25);
      await killAtEveryPlace(gathering);
      const evidence = await gathering.gathered();
      expect(evidence.ended.get("clean")).toContain("all is done");
      expect(agentViolations(evidence)).toEqual([]);
    },
    fleetMs,
  );

  test(
    "that are killed again and again, at any moment, do so too",
    async () => {
      const seed = Date.now() % 1_000_000;
      console.info(`seed ${seed}`);
      const gathering = await openEvidence(agentsOn(await createFleet({ on })));
      await killAtAnyMoment(gathering, seededRandom(seed), { kills: 4, agents: 10 });
      const evidence = await gathering.gathered();
      expect(evidence.ended.get("clean")).toContain("all is done");
      expect(agentViolations(evidence)).toEqual([]);
    },
    fleetMs,
  );
});
