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
    listRuns: () => [
      flows.listRuns({ limit: 10 }),
      flows.listRuns({
        flow: "order",
        status: "open",
        tenant: "acme",
        at: "charge",
        parent: "run-1",
        setAside: true,
        before: "run-9",
        limit: 10,
      }),
    ],
    getRun: () => flows.getRun("run-1"),
    openSignals: () => flows.openSignals("run-1", { after: 1, limit: 10 }),
    countRuns: () => flows.countRuns(),
    countReadyRuns: () => flows.countReadyRuns(["order"]),
    countOtherRuns: () => flows.countOtherRuns(),
    countStuck: () => flows.countStuck({ failures: 5, waitingMs: 60_000 }),
  }),
};
