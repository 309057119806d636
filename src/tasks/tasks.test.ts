import { afterAll } from "vitest";
import { statementKinds, usualKinds } from "../store/kinds.contract.ts";
import { closeStores } from "../queue/queue.contract.ts";
import { tasksContract, workingContract } from "../queue/tasks.contract.ts";

afterAll(closeStores);

for (const kind of statementKinds) tasksContract(kind);
for (const kind of usualKinds) workingContract(kind);
