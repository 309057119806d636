import { afterAll } from "vitest";
import { storeKinds } from "../../store/contract/kinds.ts";
import { boundEventsContract } from "../contract/bound-events.ts";
import { closeFleets } from "../contract/shares-fleet.ts";
import { learningContract } from "../contract/fleet-learning.ts";
import { sharesContract, sharesRowsContract } from "../contract/shares.ts";

afterAll(closeFleets);

for (const kind of storeKinds) {
  sharesContract(kind);
  sharesRowsContract(kind);
  learningContract(kind);
  boundEventsContract(kind);
}
