import { afterAll } from "vitest";
import { usualKinds } from "../store/contract/kinds.ts";
import { closeStores } from "./contract/harness.ts";
import { tasksContract, workingContract } from "./contract/tasks.ts";

afterAll(closeStores);

for (const kind of usualKinds) tasksContract(kind);
for (const kind of usualKinds) workingContract(kind);
