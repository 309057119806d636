import { afterAll } from "vitest";
import { closeStores } from "../tasks/contract/harness.ts";
import { usualKinds } from "../store/contract/kinds.ts";
import { afterContract } from "./contract/after.ts";
import { cancelRunningContract } from "./contract/cancel-running.ts";
import { cancelContract } from "./contract/cancel.ts";
import { childrenEndingContract } from "./contract/children-ending.ts";
import { childrenRacesContract } from "./contract/children-races.ts";
import { childrenContract } from "./contract/children.ts";
import { finalizersTroubleContract } from "./contract/finalizers-failing.ts";
import { finalizersContract } from "./contract/finalizers.ts";
import { interferenceContract } from "./contract/interference.ts";
import { renamedContract } from "./contract/renamed.ts";
import { runListsContract } from "./contract/run-lists.ts";
import { runStepsContract } from "./contract/run-steps.ts";
import { signalsRacesContract } from "./contract/signals-races.ts";
import { signalsContract } from "./contract/signals.ts";
import { sleepContract } from "./contract/sleep.ts";
import { whyRunsContract } from "./contract/why.ts";

afterAll(closeStores);

for (const kind of usualKinds) {
  signalsContract(kind);
  signalsRacesContract(kind);
  childrenContract(kind);
  childrenEndingContract(kind);
  childrenRacesContract(kind);
  sleepContract(kind);
  afterContract(kind);
  cancelContract(kind);
  cancelRunningContract(kind);
  finalizersContract(kind);
  finalizersTroubleContract(kind);
  interferenceContract(kind);
  renamedContract(kind);
  runListsContract(kind);
  runStepsContract(kind);
  whyRunsContract(kind);
}
