import { afterAll } from "vitest";
import { closeStores } from "../queue/queue.contract.ts";
import { usualKinds } from "../store/kinds.contract.ts";
import { firingContract } from "./firing.contract.ts";
import { schedulesContract } from "./schedules.contract.ts";

afterAll(closeStores);

for (const kind of usualKinds) {
  schedulesContract(kind);
  firingContract(kind);
}
