import { afterAll } from "vitest";
import { usualKinds } from "../store/contract/kinds.ts";
import { closeStores } from "../tasks/contract/harness.ts";
import { actsContract } from "./contract/acts.ts";
import { auditPagesContract } from "./contract/pages.ts";

afterAll(closeStores);

for (const kind of usualKinds) {
  actsContract(kind);
  auditPagesContract(kind);
}
