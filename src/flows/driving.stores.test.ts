import { afterAll } from "vitest";
import { closeStores } from "../tasks/contract/harness.ts";
import { usualKinds } from "../store/contract/kinds.ts";
import { drivingContract } from "./contract/driving.ts";
import { fencesContract } from "./contract/fences.ts";
import { mixedVersionsContract } from "./contract/mixed-versions.ts";
import { resumingContract } from "./contract/resuming.ts";
import { retryingContract } from "./contract/retrying.ts";
import { runProgressContract } from "./contract/run-progress.ts";
import { runQueuesContract } from "./contract/run-queues.ts";
import { sharingContract } from "./contract/sharing.ts";

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
