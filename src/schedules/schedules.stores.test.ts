import { afterAll } from "vitest";
import { closeStores } from "../tasks/contract/harness.ts";
import { usualKinds } from "../store/contract/kinds.ts";
import { firingContract } from "./contract/firing.ts";
import { schedulesContract } from "./contract/schedules.ts";

afterAll(closeStores);

for (const kind of usualKinds) {
  schedulesContract(kind);
  firingContract(kind);
}
