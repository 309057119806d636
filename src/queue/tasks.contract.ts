import type { StoreKind } from "../store/database.contract.ts";
import { askContract } from "./ask.contract.ts";
import { claimContract } from "./claim.contract.ts";
import { claimerContract } from "./claimer.contract.ts";
import { depthContract } from "./depth.contract.ts";
import { eachContract } from "./each.contract.ts";
import { enqueueContract } from "./enqueue.contract.ts";
import { finishContract } from "./finish.contract.ts";
import { keysContract } from "./keys.contract.ts";
import { policiesContract } from "./policies.contract.ts";
import { outboxContract } from "./outbox/outbox.contract.ts";
import { progressContract } from "./progress.contract.ts";
import { recoverContract } from "./recover.contract.ts";
import { middlewareContract } from "./middleware.contract.ts";
import { onFailureContract } from "./on-failure.contract.ts";
import { snoozeContract } from "./snooze.contract.ts";
import { stopContract } from "./stop.contract.ts";
import { troubleContract } from "./trouble.contract.ts";
import { twoClaimsContract } from "./two-claims.contract.ts";
import { waitContract } from "./wait.contract.ts";
import { withinContract } from "./within.contract.ts";
import { workersContract } from "./workers.contract.ts";
import { workerContract } from "./worker.contract.ts";

/** Everything that tasks promise on every store. */
export function tasksContract(kind: StoreKind): void {
  enqueueContract(kind);
  keysContract(kind);
  policiesContract(kind);
  eachContract(kind);
  claimContract(kind);
  finishContract(kind);
  recoverContract(kind);
  askContract(kind);
  depthContract(kind);
  waitContract(kind);
  workerContract(kind);
  middlewareContract(kind);
  onFailureContract(kind);
  snoozeContract(kind);
  stopContract(kind);
  troubleContract(kind);
  twoClaimsContract(kind);
  withinContract(kind);
  workersContract(kind);
  outboxContract(kind);
  claimerContract(kind);
  progressContract(kind);
}
