import { expect, test } from "vitest";
import { planning } from "../../store/contract/planning.ts";
import {
  getDemands,
  getReports,
  getShares,
  getThrottles,
  listEvents,
  listThrottles,
  noteChange,
  pruneThrottles,
  summarizeThrottles,
} from "./sql.ts";

// Keys that are derived from callers are many, and the planner has no statistics about that.
const planOf = planning([
  "analyze flotilla.throttle",
  "analyze flotilla.throttle_report",
  `insert into flotilla.throttle (name, key, bound)
    select 'api', 'k' || nth, 1 from generate_series(1, 20000) nth`,
  `insert into flotilla.throttle_report
      (name, key, pod_id, seq, demand, in_flight, waiting, totals, at)
    select 'api', 'k' || nth, 'p', 1, 1, 1, 1, '{}', 0 from generate_series(1, 20000) nth`,
  `insert into flotilla.throttle_event (name, key, seq, cause, bound, epoch)
    select 'api', 'k' || nth % 100, nth, 'slow', 1, 1 from generate_series(1, 20000) nth`,
]);
const place = { name: "api", key: "k9" };

test.each([
  ["a page of throttles", listThrottles(place, 100)],
  ["the keys of one throttle", listThrottles({ name: "api", key: "" }, 100, "api")],
  ["the first throttles in brief", summarizeThrottles(1_000, 10_000)],
  ["a pod's shares", getShares([place])],
  ["what pods want", getDemands([place])],
  ["a throttle", getThrottles([place])],
  ["what pods have reported of it", getReports([place])],
  ["how its bound has changed", listEvents(place, { before: 9, count: 50 })],
  ["the note of a change", noteChange(place, 3, { cause: "slow", breaker: "closed" })[1]!],
  [
    "the changes that are forgotten",
    noteChange(place, 3, { cause: "slow", breaker: "closed" })[2]!,
  ],
  ["the changes of one that is unused", pruneThrottles([place], 1_000)[1]!],
])("Postgres goes to %s directly", async (_, statement) => {
  const plan = await planOf(statement);
  expect(plan).toMatch(/Index Cond: \(/);
  expect(plan).not.toMatch(/Seq Scan on throttle/);
});
