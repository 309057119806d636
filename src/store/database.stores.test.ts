import { databaseContract } from "./contract/database.ts";
import { storeKinds } from "./contract/kinds.ts";
import { migrateContract } from "./contract/migrate.ts";

for (const kind of storeKinds) {
  databaseContract(kind);
  migrateContract(kind);
}
