import { afterAll } from "vitest";
import { closeStores } from "../queue/queue.contract.ts";
import { usualKinds } from "../store/kinds.contract.ts";
import { drivingContract } from "../flow/driving.contract.ts";
import { fencesContract } from "../flow/fences.contract.ts";
import { mixedVersionsContract } from "../flow/mixed-versions.contract.ts";
import { resumingContract } from "../flow/resuming.contract.ts";
import { retryingContract } from "../flow/retrying.contract.ts";
import { runProgressContract } from "../flow/run-progress.contract.ts";
import { runQueuesContract } from "../flow/run-queues.contract.ts";
import { sharingContract } from "../flow/sharing.contract.ts";

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
