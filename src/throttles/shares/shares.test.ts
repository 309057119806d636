import { afterAll } from "vitest";
import { storeKinds } from "../../store/kinds.contract.ts";
import { closeFleets } from "../../throttle/share/fleet.contract.ts";
import { learningContract } from "../../throttle/share/learning.contract.ts";
import { sharesContract } from "../../throttle/share/shares.contract.ts";

afterAll(closeFleets);

for (const kind of storeKinds) {
  sharesContract(kind);
  learningContract(kind);
}
