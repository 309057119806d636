import { afterAll } from "vitest";
import { usualKinds } from "../store/contract/kinds.ts";
import { closeStores } from "../tasks/contract/harness.ts";
import { bulkContract } from "./contract/bulk.ts";
import { bulkFilterContract } from "./contract/filters.ts";

afterAll(closeStores);

for (const kind of usualKinds) {
  bulkContract(kind);
  bulkFilterContract(kind);
}
