/** What is simulated, by name, and how one seed of it is run and reported. */
import { messageOf } from "../../src/base/errors.ts";
import { runArchiveSeed } from "./archive/run.ts";
import { runBeatSeed } from "./beats/run.ts";
import { runFlowSeed } from "./flows/run.ts";
import { runForkSeed } from "./forks/run.ts";
import type { Outcome } from "./report.ts";
import { runSeed } from "./run.ts";
import { runSessionSeed } from "./sessions/run.ts";
import { runStreamSeed } from "./streams/run.ts";
import { runThrottleSeed } from "./throttles/run.ts";

export const scenarios = {
  tasks: runSeed,
  beats: runBeatSeed,
  flows: runFlowSeed,
  sessions: runSessionSeed,
  forks: runForkSeed,
  archive: runArchiveSeed,
  streams: runStreamSeed,
  throttles: runThrottleSeed,
};

export type Scenario = keyof typeof scenarios;

export const scenarioNames = Object.keys(scenarios) as readonly Scenario[];

/** Runs one seed. One that throws has broken something too. */
export async function outcomeOf(scenario: Scenario, seed: number): Promise<Outcome> {
  // Thousands of errors are made on purpose, and their stacks are never read.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    const { violations, hash, counts, virtualMs } = await scenarios[scenario](seed);
    return { seed, violations, hash, counts, virtualMs };
  } catch (error) {
    const violations = [{ invariant: "thrown", what: messageOf(error) }];
    return { seed, violations, hash: "", counts: new Map(), virtualMs: 0 };
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}
