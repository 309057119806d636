import { afterAll } from "vitest";
import { closeStores } from "../queue/queue.contract.ts";
import { usualKinds } from "../store/kinds.contract.ts";
import { redriveContract } from "../deadletters/redrive.contract.ts";
import { viewContract } from "../deadletters/view.contract.ts";

afterAll(closeStores);

for (const kind of usualKinds) {
  viewContract(kind);
  redriveContract(kind);
}
