import { afterAll } from "vitest";
import { closeStores } from "../tasks/contract/harness.ts";
import { usualKinds } from "../store/contract/kinds.ts";
import { groupsContract } from "./contract/groups.ts";
import { redriveContract } from "./contract/redrive.ts";
import { indexFilesContract } from "./contract/index-files.ts";

afterAll(closeStores);

for (const kind of usualKinds) {
  indexFilesContract(kind);
  groupsContract(kind);
  redriveContract(kind);
}
