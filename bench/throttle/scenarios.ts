import { between, type Random } from "../../src/base/random.ts";
import type { Conditions } from "./downstream.ts";
import type { Fleet } from "./fleet.ts";
import type { VirtualTime } from "./virtual-time.ts";

/** What a scenario can change while it goes on. */
export type Stage = {
  readonly time: VirtualTime;
  readonly random: Random;
  readonly conditions: Conditions;
  readonly capacity: number;
  readonly pods: number;
  readonly fleet: Fleet;
};

/** Times count from the start of the run. */
export type Scenario = {
  readonly name: string;
  readonly about: string;
  /** When that happened which a contender has to adapt to. */
  readonly changedMs: number;
  /** From here to the end is what figures are taken of. */
  readonly settledMs: number;
  readonly endMs: number;
  readonly play: (stage: Stage) => void;
  /** How many calls each pod wants in flight; otherwise all the same, and far more than there is. */
  readonly demands?: (capacity: number) => readonly number[];
};

const seconds = 1_000;

export const steady: Scenario = {
  name: "steady",
  about: "nothing changes; adapting counts from the start, where nobody knows anything",
  changedMs: 0,
  settledMs: 60 * seconds,
  endMs: 120 * seconds,
  play: () => undefined,
};

export const halved: Scenario = {
  name: "halved",
  about: "half of the capacity is gone after a minute",
  changedMs: 60 * seconds,
  settledMs: 70 * seconds,
  endMs: 150 * seconds,
  play({ time, conditions, capacity }) {
    time.in(60 * seconds, () => {
      conditions.capacity = capacity / 2;
    });
  },
};

export const doubled: Scenario = {
  name: "doubled",
  about: "there is twice the capacity after a minute",
  changedMs: 60 * seconds,
  settledMs: 120 * seconds,
  endMs: 180 * seconds,
  play({ time, conditions, capacity }) {
    time.in(60 * seconds, () => {
      conditions.capacity = capacity * 2;
    });
  },
};

const burstMs = 300;

export const bursts: Scenario = {
  name: "bursts",
  about: `every 12 to 18 s everything is answered with 429 for ${burstMs} ms; adapting counts from the end of one burst`,
  changedMs: 75 * seconds + burstMs,
  settledMs: 60 * seconds,
  endMs: 180 * seconds,
  play({ time, random, conditions }) {
    for (let at = 15; at < 180; at += 15) {
      // The one that adapting is counted from is always at the same time.
      const shift = at === 75 ? 0 : between(random, -1_500, 1_500);
      time.in(at * seconds + shift, () => {
        conditions.refusing = true;
      });
      time.in(at * seconds + shift + burstMs, () => {
        conditions.refusing = false;
      });
    }
  },
};

export const slows: Scenario = {
  name: "slows",
  about: "answers take three times as long at the end of two minutes, capacity stays",
  changedMs: 180 * seconds,
  settledMs: 60 * seconds,
  endMs: 210 * seconds,
  play({ time, conditions }) {
    const from = conditions.latencyMs;
    for (let at = 0; at <= 120; at++) {
      time.in((60 + at) * seconds, () => {
        conditions.latencyMs = from * (1 + (2 * at) / 120);
      });
    }
  },
};

export const noisy: Scenario = {
  name: "noisy",
  about: "3 % of the answers are errors of the server, whatever the load, from one minute on",
  changedMs: 60 * seconds,
  settledMs: 60 * seconds,
  endMs: 150 * seconds,
  play({ time, conditions }) {
    time.in(60 * seconds, () => {
      conditions.errorShare = 0.03;
    });
  },
};

export const out: Scenario = {
  name: "out",
  about: "for half a minute every call hangs or fails; adapting counts from its end",
  changedMs: 90 * seconds,
  settledMs: 120 * seconds,
  endMs: 180 * seconds,
  play({ time, conditions }) {
    time.in(60 * seconds, () => {
      conditions.out = true;
    });
    time.in(90 * seconds, () => {
      conditions.out = false;
    });
  },
};

export const churn: Scenario = {
  name: "churn",
  about:
    "as many pods again join after a minute, as many leave at 90 s, a quarter of the rest dies at 120 s",
  changedMs: 60 * seconds,
  settledMs: 60 * seconds,
  endMs: 240 * seconds,
  play({ time, fleet, pods, capacity }) {
    const demand = equalDemand(capacity, pods);
    time.in(60 * seconds, () => {
      for (let at = 0; at < pods; at++) fleet.join(`late-${at}`, demand);
    });
    time.in(90 * seconds, () => {
      for (let at = 0; at < pods; at++) fleet.leave(at % 2 === 0 ? podName(at) : `late-${at}`);
    });
    time.in(120 * seconds, () => {
      for (let at = 1; at < pods / 2; at += 2) fleet.die(podName(at));
    });
  },
};

export const uneven: Scenario = {
  name: "uneven",
  about: "eight pods, of which two want all there is and six want one or two calls at a time",
  changedMs: 0,
  settledMs: 60 * seconds,
  endMs: 120 * seconds,
  demands: (capacity) => [2 * capacity, 2 * capacity, 1, 1, 1, 1, 2, 2],
  play: () => undefined,
};

export const cold: Scenario = {
  name: "cold",
  about: "pods that know nothing start at a downstream that states its limits with every answer",
  changedMs: 0,
  settledMs: 5 * seconds,
  endMs: 60 * seconds,
  play: () => undefined,
};

/** What the downstream does to a fleet that stays as it is. */
export const scenarios = [steady, halved, doubled, bursts, slows, noisy, out] as const;

/** What is played where the downstream says nothing about its limits. */
export const silentScenarios = [...scenarios, churn, uneven] as const;

export const allScenarios = [...silentScenarios, cold] as const;

export function podName(at: number): string {
  return `pod-${at}`;
}

/** All pods together want four times what there is, twice what there ever will be. */
export function equalDemand(capacity: number, pods: number): number {
  return Math.ceil((4 * capacity) / pods);
}
