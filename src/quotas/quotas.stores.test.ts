import { storeKinds } from "../store/contract/kinds.ts";
import { tenantCountsContract } from "./contract/counts.ts";

for (const kind of storeKinds) tenantCountsContract(kind);
