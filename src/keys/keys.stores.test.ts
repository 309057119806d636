import { storeKinds } from "../store/contract/kinds.ts";
import { credentialsContract } from "./contract/credentials.ts";
import { keysContract } from "./contract/keys.ts";

for (const kind of storeKinds) {
  keysContract(kind);
  credentialsContract(kind);
}
