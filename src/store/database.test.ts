import { databaseContract } from "./database.contract.ts";
import { storeKinds } from "./kinds.contract.ts";
import { migrateContract } from "./migrate.contract.ts";

for (const kind of storeKinds) {
  databaseContract(kind);
  migrateContract(kind);
}
