import { manySlots } from "../tasks/work.ts";
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
  /** What is better where it waits for work, or where its tasks wait. */
  readonly waking?: Settings;
  readonly waiting?: Settings;
  /** Variants that store the same may have copies of the same backlog. */
  readonly backlog: string;
  readonly defaults: boolean;
  /** Where its programs are, if not in this checkout. */
  readonly checkout?: string | undefined;
};

// graphile-worker's documentation on performance: a local queue, and jobs completed in batches.
const graphileBest = {
  concurrentJobs: 24,
  localQueue: { size: 500 },
  completeJobBatchDelay: 0,
  failJobBatchDelay: 0,
};

// pg-boss's documentation on workers: large batches, fetched without a pause while they come full, by
// several fetchers, and LISTEN/NOTIFY in place of short polls.
const bossBest = { batchSize: 1_000, localConcurrency: 4, burstWhenBatchFull: true };

// BullMQ's documentation: a concurrency for work that waits. More than this brought nothing here.
const bullBest = { concurrency: 100 };

/** Our own variants, as another checkout runs them. */
export function variantsBeside(checkout: string): Variant[] {
  return variants
    .filter(({ system }) => system === "flotilla")
    .map((ours) => ({
      ...ours,
      key: ours.key.replace("flotilla", "beside"),
      about: `${ours.about}, of the other checkout`,
      backlog: "beside",
      checkout,
    }));
}

export const variants: readonly Variant[] = [
  {
    key: "flotilla",
    system: "flotilla",
    server: "postgres",
    about: `slots: ${manySlots}`,
    settings: { slots: manySlots },
    waking: {},
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
    // With 24 at once, tasks that wait would be all it waits for.
    waiting: { worker: { ...graphileBest, concurrentJobs: 100 } },
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
  {
    key: "pg-boss",
    system: "pg-boss",
    server: "postgres",
    about: "batchSize 1,000, localConcurrency 4, burstWhenBatchFull, notify",
    settings: { notify: true, work: bossBest },
    waking: { notify: true },
    backlog: "pg-boss notify",
    defaults: false,
  },
  {
    key: "pg-boss-default",
    system: "pg-boss",
    server: "postgres",
    about: "defaults (one job per poll of 2 s)",
    settings: {},
    backlog: "pg-boss",
    defaults: true,
  },
  ...(["redis", "redis-aof"] as const).flatMap((server): Variant[] => [
    {
      key: `bullmq-${server}`,
      system: "bullmq",
      server,
      about: "concurrency 100",
      settings: { worker: bullBest },
      waking: {},
      backlog: "bullmq",
      defaults: false,
    },
    {
      key: `bullmq-${server}-default`,
      system: "bullmq",
      server,
      about: "defaults (concurrency 1)",
      settings: {},
      backlog: "bullmq",
      defaults: true,
    },
  ]),
];
