import { afterAll } from "vitest";
import { closeStores } from "../queue/queue.contract.ts";
import { storeKinds } from "../store/kinds.contract.ts";
import { childrenContract } from "./children.contract.ts";
import { signalsContract } from "./signals.contract.ts";

afterAll(closeStores);

for (const kind of storeKinds) {
  signalsContract(kind);
  childrenContract(kind);
}
