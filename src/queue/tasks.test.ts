import { afterAll } from "vitest";
import { storeKinds } from "../store/kinds.contract.ts";
import { closeStores } from "./queue.contract.ts";
import { tasksContract } from "./tasks.contract.ts";

afterAll(closeStores);

for (const kind of storeKinds) tasksContract(kind);
