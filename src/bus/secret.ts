import { FlotillaError } from "../base/errors.ts";
import type { Database } from "../store/database.ts";
import { readBusSecret } from "./sql.ts";

/** The secret of the store, which all its processes know. What is signed with it names its own purpose. */
export async function readSecret(database: Pick<Database, "read">): Promise<string> {
  const [row] = await database.read(readBusSecret());
  if (row) return row["secret"] as string;
  throw new FlotillaError(
    "store_corrupt",
    "the table bus_secret has lost its row: restore the store from a back-up",
  );
}
