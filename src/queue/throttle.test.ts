import { afterAll } from "vitest";
import { storeKinds } from "../store/kinds.contract.ts";
import { closeStores } from "./queue.contract.ts";
import { throttleContract } from "./throttle.contract.ts";

afterAll(closeStores);

for (const kind of storeKinds) throttleContract(kind);
