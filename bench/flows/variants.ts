import type { Settings } from "../systems/system.ts";
import type { FlowSystemName } from "./systems/system.ts";

export type PlaceKind = "postgres" | "sqlite" | "restate-24" | "restate-2";

/** A system in one configuration. */
export type FlowVariant = {
  /** As it is called in `versus`. */
  readonly key: string;
  readonly system: FlowSystemName;
  readonly place: PlaceKind;
  /** The configuration, for people. */
  readonly about: string;
  readonly settings: Settings;
  /** What it needs to have 10,000 runs under way in one process. */
  readonly holding?: Settings;
  /** The package whose version says which one it is. */
  readonly package?: string;
  /** Whether runs are started from a process of their own. */
  readonly apart?: boolean;
  /** Where its programs are, if not in this checkout. */
  readonly checkout?: string | undefined;
};

const restate = {
  system: "restate",
  package: "@restatedev/restate-server",
  settings: {},
  apart: true,
} as const;

// A pod uses 0.8 of its slots, unless it is told otherwise.
const ours = {
  key: "flotilla",
  system: "flotilla",
  about: "slots: 1,250; to hold 10,000 runs, slots: 12,500",
  settings: { slots: 1_250 },
  holding: { slots: 12_500 },
} as const;

const onPostgres: readonly FlowVariant[] = [
  { ...ours, place: "postgres" },
  {
    key: "limit",
    system: "limit",
    place: "postgres",
    about: "bare pg, 2 connections: whichever is idle commits what all runs have ready",
    settings: {},
  },
  {
    key: "dbos",
    system: "dbos",
    place: "postgres",
    about: "defaults (10 connections), workflows called in process",
    settings: {},
    package: "@dbos-inc/dbos-sdk",
  },
  { ...restate, key: "restate-24", place: "restate-24", about: "24 partitions, its default" },
  { ...restate, key: "restate-2", place: "restate-2", about: "2 partitions" },
];

const onSqlite: readonly FlowVariant[] = [
  { ...ours, place: "sqlite" },
  {
    key: "limit",
    system: "limit-sqlite",
    place: "sqlite",
    about: "bare node:sqlite on one thread: it commits what all runs have ready",
    settings: {},
  },
];

export const flowVariants = { postgres: onPostgres, sqlite: onSqlite };

export const flowKeys = [
  ...new Set(Object.values(flowVariants).flatMap((those) => those.map(({ key }) => key))),
];
