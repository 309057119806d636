import type { Fleet } from "../../sessions/log/fleet.ts";
import type { Journal, Presence, Reads } from "../../sessions/log/journal.ts";
import type { LogSide } from "./placed-logs.ts";

/** The logs of sessions in the rows of the store. */
export function createStoredLogs({
  journal,
  cold,
  presence,
  fleet = noFleet,
}: {
  journal: Journal;
  cold: Reads;
  presence: Presence;
  /** Default: none, for a process that owns no log. */
  fleet?: Fleet;
}): LogSide {
  return {
    place: "sql",
    // The store has everything.
    journal: { ...journal, unarchivedFacts: async () => ({}), behindMs: () => undefined },
    cold,
    presence,
    fleet,
    headSource: journal,
    listen() {},
    start: () => fleet.start(),
    stop: async () => fleet.close(),
    state: () => undefined,
    meta: async () => undefined,
  };
}

const noFleet: Fleet = {
  pods: () => new Map(),
  withAgent: () => [],
  factsOf: () => undefined,
  refresh: async () => {},
  start() {},
  close() {},
};
