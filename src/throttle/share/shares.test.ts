import { afterAll } from "vitest";
import { storeKinds } from "../../store/kinds.contract.ts";
import { closeFleets } from "./fleet.contract.ts";
import { learningContract } from "./learning.contract.ts";
import { sharesContract } from "./shares.contract.ts";

afterAll(closeFleets);

for (const kind of storeKinds) {
  sharesContract(kind);
  learningContract(kind);
}
