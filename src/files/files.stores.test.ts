import { storeKinds } from "../store/contract/kinds.ts";
import { filesContract } from "./contract/files.ts";

for (const kind of storeKinds) filesContract(kind);
