import { afterAll } from "vitest";
import { closeStores } from "../queue/queue.contract.ts";
import { usualKinds } from "../store/kinds.contract.ts";
import { afterContract } from "../flow/after.contract.ts";
import { cancelRunningContract } from "../flow/cancel-running.contract.ts";
import { cancelContract } from "../flow/cancel.contract.ts";
import { childrenEndingContract } from "../flow/children-ending.contract.ts";
import { childrenRacesContract } from "../flow/children-races.contract.ts";
import { childrenContract } from "../flow/children.contract.ts";
import { finalizersTroubleContract } from "../flow/finalizers-trouble.contract.ts";
import { finalizersContract } from "../flow/finalizers.contract.ts";
import { interferenceContract } from "../flow/interference.contract.ts";
import { renamedContract } from "../flow/renamed.contract.ts";
import { signalsRacesContract } from "../flow/signals-races.contract.ts";
import { signalsContract } from "../flow/signals.contract.ts";
import { sleepContract } from "../flow/sleep.contract.ts";

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
}
