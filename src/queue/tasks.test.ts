import { storeKinds } from "../store/kinds.contract.ts";
import { tasksContract } from "./tasks.contract.ts";

for (const kind of storeKinds) tasksContract(kind);
