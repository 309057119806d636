import type { StoreKind } from "../store/database.contract.ts";
import { askContract } from "./ask.contract.ts";
import { capacityContract } from "./capacity.contract.ts";
import { claimContract } from "./claim.contract.ts";
import { claimerContract } from "./claimer.contract.ts";
import { depthContract } from "./depth.contract.ts";
import { eachContract } from "./each.contract.ts";
import { enqueueContract } from "./enqueue.contract.ts";
import { finishContract } from "./finish.contract.ts";
import { fleetContract } from "./fleet.contract.ts";
import { gatesContract } from "./gates.contract.ts";
import { graphContract } from "./graph.contract.ts";
import { keysContract } from "./keys.contract.ts";
import { limitsContract } from "./limits.contract.ts";
import { pauseContract } from "./pause.contract.ts";
import { policiesContract } from "./policies.contract.ts";
import { outboxContract } from "./outbox/outbox.contract.ts";
import { progressContract } from "./progress.contract.ts";
import { pruneContract } from "./prune.contract.ts";
import { recoverContract } from "./recover.contract.ts";
import { refusedContract } from "./refused.contract.ts";
import { middlewareContract } from "./middleware.contract.ts";
import { onFailureContract } from "./on-failure.contract.ts";
import { snoozeContract } from "./snooze.contract.ts";
import { stopContract } from "./stop.contract.ts";
import { troubleContract } from "./trouble.contract.ts";
import { twoClaimsContract } from "./two-claims.contract.ts";
import { waitContract } from "./wait.contract.ts";
import { waitingContract } from "./waiting.contract.ts";
import { waitsContract } from "./waits.contract.ts";
import { withinContract } from "./within.contract.ts";
import { workersContract } from "./workers.contract.ts";
import { workerContract } from "./worker.contract.ts";

/** What tasks promise on every store, by the statements that each has of them. */
export function tasksContract(kind: StoreKind): void {
  enqueueContract(kind);
  keysContract(kind);
  policiesContract(kind);
  eachContract(kind);
  claimContract(kind);
  gatesContract(kind);
  limitsContract(kind);
  pauseContract(kind);
  finishContract(kind);
  recoverContract(kind);
  pruneContract(kind);
  askContract(kind);
  depthContract(kind);
  waitContract(kind);
  waitsContract(kind);
  waitingContract(kind);
  graphContract(kind);
  onFailureContract(kind);
  stopContract(kind);
  twoClaimsContract(kind);
  withinContract(kind);
  progressContract(kind);
}

/** What those promise who claim tasks and run them, by the same statements. */
export function workingContract(kind: StoreKind): void {
  workerContract(kind);
  fleetContract(kind);
  middlewareContract(kind);
  capacityContract(kind);
  snoozeContract(kind);
  troubleContract(kind);
  workersContract(kind);
  outboxContract(kind);
  claimerContract(kind);
  refusedContract(kind);
}
