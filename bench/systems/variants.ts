import type { Settings, SystemName } from "./system.ts";

export type ServerKind = "postgres" | "redis" | "redis-aof";

/** A system in one configuration. */
export type Variant = {
  /** As it is called in `versus`. */
  readonly key: string;
  readonly system: SystemName;
  readonly server: ServerKind;
  /** The configuration, for people. */
  readonly about: string;
  readonly settings: Settings;
  /** Variants that store the same may have copies of the same backlog. */
  readonly backlog: string;
  readonly defaults: boolean;
};

/** What a pod with short tasks should be given, so that it holds several batches at once. */
export const manySlots = 1_000;

// graphile-worker's documentation on performance: a local queue, and jobs completed in batches.
const graphileBest = {
  concurrentJobs: 24,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

export const variants: readonly Variant[] = [
  {
    key: "flotilla",
    system: "flotilla",
    server: "postgres",
    about: `slots: ${manySlots}`,
    settings: { slots: manySlots },
    backlog: "flotilla",
    defaults: false,
  },
  {
    key: "flotilla-default",
    system: "flotilla",
    server: "postgres",
    about: "defaults (100 slots)",
    settings: {},
    backlog: "flotilla",
    defaults: true,
  },
  {
    key: "limit",
    system: "limit",
    server: "postgres",
    about: "bare pg, our statements in batches of 100, 4 connections",
    settings: {},
    backlog: "flotilla",
    defaults: false,
  },
  {
    key: "graphile-worker",
    system: "graphile-worker",
    server: "postgres",
    about: "concurrentJobs 24, localQueue 500, completeJobBatchDelay 0",
    settings: { worker: graphileBest },
    backlog: "graphile",
    defaults: false,
  },
  {
    key: "graphile-worker-default",
    system: "graphile-worker",
    server: "postgres",
    about: "defaults (concurrentJobs 1)",
    settings: {},
    backlog: "graphile",
    defaults: true,
  },
];

export function variantOf(key: string): Variant {
  const found = variants.find((variant) => variant.key === key);
  if (!found) throw new Error(`there is no ${key}`);
  return found;
}
