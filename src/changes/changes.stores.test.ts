import { afterAll } from "vitest";
import { storeKinds } from "../store/contract/kinds.ts";
import { closeStores } from "../tasks/contract/harness.ts";
import { changesContract } from "./contract/changes.ts";

afterAll(closeStores);

for (const kind of storeKinds) changesContract(kind);
