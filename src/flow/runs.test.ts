import { afterAll } from "vitest";
import { closeStores } from "../queue/queue.contract.ts";
import { usualKinds } from "../store/kinds.contract.ts";
import { afterContract } from "./after.contract.ts";
import { cancelRunningContract } from "./cancel-running.contract.ts";
import { cancelContract } from "./cancel.contract.ts";
import { childrenEndingContract } from "./children-ending.contract.ts";
import { childrenRacesContract } from "./children-races.contract.ts";
import { childrenContract } from "./children.contract.ts";
import { finalizersTroubleContract } from "./finalizers-trouble.contract.ts";
import { finalizersContract } from "./finalizers.contract.ts";
import { interferenceContract } from "./interference.contract.ts";
import { renamedContract } from "./renamed.contract.ts";
import { signalsRacesContract } from "./signals-races.contract.ts";
import { signalsContract } from "./signals.contract.ts";
import { sleepContract } from "./sleep.contract.ts";

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
