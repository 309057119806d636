import { afterAll } from "vitest";
import { closeStores } from "../queue/queue.contract.ts";
import { storeKinds } from "../store/kinds.contract.ts";
import { schedulesContract } from "./schedules.contract.ts";

afterAll(closeStores);

for (const kind of storeKinds) schedulesContract(kind);
