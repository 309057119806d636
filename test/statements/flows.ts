import * as flows from "../../src/flows/sql.ts";
import { entry } from "./audit.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

const resume = { runId: "run-1", requestId: "request-1" };

export const flowStatements: RoomStatements = {
  "src/flows/sql.ts": sqlFile(flows, {
    childrenOf: () => flows.childrenOf("run-1", "charge"),
    retrySetAside: () => flows.retrySetAside("order", 2),
    resumeSetAside: () => [
      flows.resumeSetAside({ ...resume, version: null, forget: [] }),
      flows.resumeSetAside({ ...resume, version: 2, forget: ["read"] }, entry),
    ],
    runConditions: () => [
      flows.runConditions({}),
      flows.runConditions({ status: "open", at: "charge", parent: "run-1", setAside: true }),
      flows.runConditions({ version: 2 }),
    ],
    dependenciesOfRun: () => flows.dependenciesOfRun("run-1", 10),
    flowNames: () => flows.flowNames(100),
    walkRuns: () =>
      flows.walkRuns(["order", "report"], {
        before: "run-9",
        from: "run-1",
        count: 10,
        fits: flows.runConditions({ status: "open" }),
        wanted: 51,
      }),
    getRun: () => flows.getRun("run-1"),
    openSignals: () => flows.openSignals("run-1", { after: 1, limit: 10 }),
    countOpenRuns: () => flows.countOpenRuns(["order"]),
    countEndedRuns: () => flows.countEndedRuns(["order"], 100),
    countReadyRuns: () => flows.countReadyRuns(["order"]),
    countOtherRuns: () => flows.countOtherRuns(),
    countStuck: () => flows.countStuck(["order"], { failures: 5, waitingMs: 60_000 }),
  }),
};
