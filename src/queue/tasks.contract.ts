import type { StoreKind } from "../store/database.contract.ts";
import { claimContract } from "./claim.contract.ts";
import { enqueueContract } from "./enqueue.contract.ts";
import { keysContract } from "./keys.contract.ts";

/** Everything that tasks promise on every store. */
export function tasksContract(kind: StoreKind): void {
  enqueueContract(kind);
  keysContract(kind);
  claimContract(kind);
}
