import { storeKinds } from "../store/contract/kinds.ts";
import { credentialsContract } from "./contract/credentials.ts";
import { keysContract } from "./contract/keys.ts";
import { signInsContract } from "./contract/sign-ins.ts";

for (const kind of storeKinds) {
  keysContract(kind);
  credentialsContract(kind);
  signInsContract(kind);
}
