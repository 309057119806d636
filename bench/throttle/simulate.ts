import { between, seededRandom } from "../../src/base/random.ts";
import { watchBound } from "./bound.ts";
import { type Conditions, createDownstream, type Wall } from "./downstream.ts";
import type { Contender, Fleet } from "./fleet.ts";
import { createLedger, type Slice, sliceMs } from "./ledger.ts";
import { equalDemand, podName, type Scenario } from "./scenarios.ts";
import { virtualTime } from "./virtual-time.ts";

/** One run: who plays what, against which wall, with how many pods. */
export type Setting = {
  readonly contender: Contender;
  readonly scenario: Scenario;
  readonly capacity: number;
  readonly wall: Wall;
  readonly pods: number;
  readonly seed: number;
};

export type Simulated = {
  readonly slices: readonly Slice[];
  /** How many more were in flight than the fleet's bound allowed, at worst; negative is below. */
  readonly overBound: number | undefined;
};

const latencyMs = 100;
/** Pods start at most this far apart. */
const startMs = 1_000;

/** The same setting gives the same run, to the last call. */
export async function simulate(setting: Setting): Promise<Simulated> {
  const { contender, scenario, capacity, wall, pods, seed } = setting;
  const time = virtualTime();
  const conditions: Conditions = {
    capacity,
    latencyMs,
    errorShare: 0,
    refusing: false,
    out: false,
  };
  const downstream = createDownstream({
    time,
    random: seededRandom(seed),
    wall,
    conditions,
  });
  const ledger = createLedger();
  const watch = watchBound();
  const fleet: Fleet = await contender.open({
    time,
    random: seededRandom(seed + 1),
    capacity: () => conditions.capacity,
    call(podId, ended) {
      ledger.began();
      if (fleet.bound) watch.look(time.monotonic(), fleet.bound(), ledger.inFlight);
      downstream.call((how) => {
        ledger.ended(podId, how);
        ended(how);
      });
    },
  });

  const random = seededRandom(seed + 2);
  const demands =
    scenario.demands?.(capacity) ?? Array.from({ length: pods }, () => equalDemand(capacity, pods));
  for (const [at, demand] of demands.entries()) {
    time.in(between(random, 0, startMs), () => fleet.join(podName(at), demand));
  }
  scenario.play({ time, random, conditions, capacity, pods, fleet });
  for (let atMs = sliceMs; atMs <= scenario.endMs; atMs += sliceMs) {
    time.in(atMs, () => ledger.turn({ limit: fleet.limit(), capacity: conditions.capacity }));
  }
  if (contender.settles) await time.settledTo(scenario.endMs);
  else time.runTo(scenario.endMs);
  return { slices: ledger.slices, overBound: fleet.bound && watch.worst };
}
