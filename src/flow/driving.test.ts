import { afterAll } from "vitest";
import { closeStores } from "../queue/queue.contract.ts";
import { storeKinds } from "../store/kinds.contract.ts";
import { drivingContract } from "./driving.contract.ts";
import { runProgressContract } from "./run-progress.contract.ts";

afterAll(closeStores);

for (const kind of storeKinds) {
  drivingContract(kind);
  runProgressContract(kind);
}
