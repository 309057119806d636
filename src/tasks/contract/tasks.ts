import type { StoreKind } from "../../store/contract/database.ts";
import { handOverContract } from "./hand-over.ts";
import { inspectContract } from "./inspect.ts";
import { capacityContract } from "./capacity.ts";
import { claimAheadContract } from "./claim-ahead.ts";
import { claimContract } from "./claim.ts";
import { claimerContract } from "./claimer.ts";
import { depthContract } from "./depth.ts";
import { eachContract } from "./each.ts";
import { enqueueContract } from "./enqueue.ts";
import { finishContract } from "./finish.ts";
import { fleetContract } from "./fleet.ts";
import { concurrencyContract } from "./concurrency.ts";
import { graphContract } from "./graph.ts";
import { keysContract } from "./keys.ts";
import { linksContract } from "./links.ts";
import { limitsContract } from "./limits.ts";
import { pauseContract } from "./pause.ts";
import { policiesContract } from "./policies.ts";
import { outboxContract } from "./outbox.ts";
import { progressContract } from "./progress.ts";
import { pruneContract } from "./prune.ts";
import { recoverContract } from "./recover.ts";
import { refusedContract } from "./refused.ts";
import { middlewareContract } from "./middleware.ts";
import { onFailureContract } from "./on-failure.ts";
import { snoozeContract } from "./snooze.ts";
import { stopContract } from "./stop.ts";
import { storeErrorsContract } from "./store-errors.ts";
import { twoClaimsContract } from "./two-claims.ts";
import { waitForContract } from "./wait-for.ts";
import { enqueueAfterContract } from "./enqueue-after.ts";
import { dependenciesContract } from "./dependencies.ts";
import { completeWithinContract } from "./complete-within.ts";
import { blockedByContract } from "./blocked-by.ts";
import { stepFaultsContract } from "./steps-faults.ts";
import { stepLimitsContract } from "./steps-limits.ts";
import { stepChildrenContract } from "./step-children.ts";
import { stepWaitsContract } from "./step-waits.ts";
import { stepsContract } from "./steps.ts";
import { workerContract } from "./worker.ts";

/** What tasks promise on every store, by the statements that each has of them. */
export function tasksContract(kind: StoreKind): void {
  enqueueContract(kind);
  keysContract(kind);
  policiesContract(kind);
  eachContract(kind);
  claimContract(kind);
  concurrencyContract(kind);
  limitsContract(kind);
  pauseContract(kind);
  finishContract(kind);
  recoverContract(kind);
  pruneContract(kind);
  linksContract(kind);
  inspectContract(kind);
  depthContract(kind);
  waitForContract(kind);
  dependenciesContract(kind);
  enqueueAfterContract(kind);
  graphContract(kind);
  onFailureContract(kind);
  stopContract(kind);
  twoClaimsContract(kind);
  claimAheadContract(kind);
  completeWithinContract(kind);
  progressContract(kind);
}

/** What those promise who claim tasks and run them, by the same statements. */
export function workingContract(kind: StoreKind): void {
  workerContract(kind);
  fleetContract(kind);
  handOverContract(kind);
  middlewareContract(kind);
  capacityContract(kind);
  snoozeContract(kind);
  storeErrorsContract(kind);
  blockedByContract(kind);
  outboxContract(kind);
  claimerContract(kind);
  refusedContract(kind);
  stepsContract(kind);
  stepLimitsContract(kind);
  stepFaultsContract(kind);
  stepWaitsContract(kind);
  stepChildrenContract(kind);
}
