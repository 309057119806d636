/** Everything that durable agents must survive, one after the other on one store, drawn from a seed. */
import { seededRandom } from "../../../src/base/random.ts";
import type { PostgresServer } from "../../postgres/server.ts";
import type { Fleet } from "../fleet.ts";
import { agentsOn } from "./agents.ts";
import { type AgentEvidence, agentViolations } from "./checkers.ts";
import {
  killAtAnyMoment,
  killAtEveryPlace,
  killServerAtAnyMoment,
  killServerAtEveryPlace,
  killTwice,
  openEvidence,
  pauseAtEveryPlace,
  roll,
} from "./faults.ts";

export type AgentMatrix = {
  readonly seed: number;
  /** The server of a store on Postgres, which is of this run alone. */
  readonly server?: PostgresServer;
  readonly say: (line: string) => void;
};

export async function runAgentMatrix(fleet: Fleet, { seed, server, say }: AgentMatrix) {
  const random = seededRandom(seed);
  const gathering = await openEvidence(agentsOn(fleet));
  const many = { kills: 6, agents: 12 };
  const faults: Readonly<Record<string, () => Promise<void>>> = {
    "a kill at every place": () => killAtEveryPlace(gathering),
    "two kills": () => killTwice(gathering, random),
    "kills at any moment": () => killAtAnyMoment(gathering, random, many),
    "a pause at every place": () => pauseAtEveryPlace(gathering),
    "two releases": () => roll(gathering, random, { deploys: 6, agents: 35 }),
    ...(server && {
      "no server at every place": () => killServerAtEveryPlace(gathering, random, server),
      "no server at any moment": () => killServerAtAnyMoment(gathering, random, server, many),
    }),
  };
  for (const [name, happen] of Object.entries(faults)) {
    say(name);
    await happen();
  }
  const evidence: AgentEvidence = await gathering.gathered();
  const { lost, ended, takeovers, reports } = evidence;
  // A deploy that finds no agent under way shows nothing.
  const podsOf = Map.groupBy(reports, ({ label }) => label);
  const handedOver = [...podsOf].filter(
    ([label, told]) => lost.get(label) === 0 && new Set(told.map(({ pod }) => pod)).size > 1,
  ).length;
  return {
    violations: [...gathering.violations, ...agentViolations(evidence)],
    mildness: [
      ...(gathering.places.length > 25 ? [] : ["places to be lost at"]),
      ...(handedOver > 0 ? [] : ["agents that a deploy hands over"]),
    ],
    evidence: {
      reports,
      lost: [...lost],
      ended: [...ended],
      takeovers: takeovers.map(({ pod, stored }) => ({ pod, stored: [...stored] })),
    },
    counts: {
      places: gathering.places.length,
      agents: lost.size,
      processes: takeovers.length,
      handedOver,
    },
  };
}
