import * as shares from "../../src/throttles/shares/sql.ts";
import { entry } from "./audit.ts";
import { noStatement, type RoomStatements, sqlFile } from "./examples.ts";

const id = { name: "openai", key: "acme" };
const report = {
  ...id,
  podId: "pod-1",
  seq: 1,
  demand: 4,
  inFlight: 2,
  waiting: 2,
  callsWaiting: 1,
  totals: "{}",
};
const learned = { bound: 8, epoch: 2, constraints: "{}", state: "{}", stats: "{}" };

export const throttleStatements: RoomStatements = {
  "src/throttles/shares/sql.ts": sqlFile(shares, {
    insertThrottles: () => shares.insertThrottles([{ ...id, bound: 4, settings: "{}" }]),
    putSettings: () => shares.putSettings([{ ...id, settings: "{}" }]),
    putReports: () => shares.putReports([report]),
    getShares: () => shares.getShares([id]),
    getDemands: () => shares.getDemands([id]),
    changeShares: () => shares.changeShares(id, 3, "{}"),
    changeLearned: () => shares.changeLearned(id, 3, learned),
    pinBound: () => shares.pinBound(id, 3, 5),
    unpinBound: () => shares.unpinBound(id, 3),
    entryOfPin: () => shares.entryOfPin(id, 3, { before: "{}", after: "{}" }, entry),
    getRecentReports: () => shares.getRecentReports(5_000),
    getThrottles: () => shares.getThrottles([id]),
    listThrottles: () => [
      shares.listThrottles({ name: "", key: "" }, 10),
      shares.listThrottles(id, 10, "openai"),
    ],
    summarizeThrottles: () => shares.summarizeThrottles(1_000, 10_000),
    getReports: () => shares.getReports([id]),
    pruneReports: () => shares.pruneReports(60_000),
    unusedThrottles: () => shares.unusedThrottles(60_000, 100),
    pruneThrottles: () => shares.pruneThrottles([id], 60_000),
    noteChange: () =>
      shares.noteChange(id, 3, { cause: "refused", breaker: "closed", bound: 4, epoch: 3 }),
    noteFirstUse: () => shares.noteFirstUse([id]),
    listEvents: () => [
      shares.listEvents(id, { count: 50 }),
      shares.listEvents(id, { before: 9, count: 50 }),
    ],
    toSharedRow: noStatement,
    toConstraints: noStatement,
    throttleMapKey: noStatement,
  }),
};
