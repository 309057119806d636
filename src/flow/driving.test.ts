import { afterAll } from "vitest";
import { closeStores } from "../queue/queue.contract.ts";
import { usualKinds } from "../store/kinds.contract.ts";
import { drivingContract } from "./driving.contract.ts";
import { fencesContract } from "./fences.contract.ts";
import { mixedVersionsContract } from "./mixed-versions.contract.ts";
import { resumingContract } from "./resuming.contract.ts";
import { retryingContract } from "./retrying.contract.ts";
import { runProgressContract } from "./run-progress.contract.ts";
import { runQueuesContract } from "./run-queues.contract.ts";
import { sharingContract } from "./sharing.contract.ts";

afterAll(closeStores);

for (const kind of usualKinds) {
  drivingContract(kind);
  retryingContract(kind);
  fencesContract(kind);
  mixedVersionsContract(kind);
  runQueuesContract(kind);
  resumingContract(kind);
  runProgressContract(kind);
  sharingContract(kind);
}
