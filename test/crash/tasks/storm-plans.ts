import type { StormPlan } from "./storm.ts";

type Plan = Omit<StormPlan, "seed">;

export const sqlitePlan: Plan = {
  pods: 4,
  calmTasks: 8_000,
  stormTasks: 12_000,
  stormMs: 10_000,
  heartbeatMs: 100,
  deadAfterMs: 500,
};

export const postgresPlan: Plan = {
  pods: 8,
  calmTasks: 4_000,
  stormTasks: 6_000,
  stormMs: 10_000,
  heartbeatMs: 150,
  // Twice as many processes on the same machine are late more often.
  deadAfterMs: 1_000,
};

/** Few enough connections that they can be used up. */
export const serverSettings = { max_connections: 110 };
