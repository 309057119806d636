import type { Header } from "../conversation/header.ts";
import { FlotillaError } from "../../base/errors.ts";
import type { Database } from "../../store/database.ts";
import { countAside, readAllWatermarks, toWatermark, type Watermark } from "./sql/archive.ts";
import { leaveForStreams, readPlace } from "./sql/heads.ts";
import { readBusy, toHeader } from "./sql/reading.ts";

export { moveToLife, type Watermark } from "./sql/archive.ts";
export { leaveDatabase, returnToDatabase } from "./sql/moves.ts";

/** Where the logs of a store's sessions are, and the id of its deployment. */
export type LogPlace = { readonly place: "sql" | "nats"; readonly clusterId: string };

export async function logPlaceOf(database: Pick<Database, "read">): Promise<LogPlace> {
  const [row] = await database.read(readPlace());
  if (row)
    return { place: row["place"] as LogPlace["place"], clusterId: row["cluster_id"] as string };
  throw new FlotillaError(
    "store_corrupt",
    "the table log_place has lost its row: restore the store from a back-up",
  );
}

/** Has the logs be on streams, unless the database has some already. Returns the id of the deployment. */
export async function placeOnStreams(database: Pick<Database, "read" | "write">): Promise<string> {
  const before = await logPlaceOf(database);
  if (before.place === "nats") return before.clusterId;
  await database.write(leaveForStreams());
  const { place, clusterId } = await logPlaceOf(database);
  if (place === "nats") return clusterId;
  throw new FlotillaError(
    "unsupported",
    'the logs of this store\'s sessions are in the database: start pods with nats.use "bus", then `flotilla promote --to nats` moves them',
  );
}

/** The sessions of a log with work under way, as the database has them. */
export async function busySessions(
  database: Pick<Database, "read">,
  logId: number,
): Promise<Header[]> {
  return (await database.read(readBusy(logId))).map(toHeader);
}

/** Up to where the database has the logs that are on streams. */
export async function readWatermarks(database: Pick<Database, "read">): Promise<Watermark[]> {
  return (await database.read(readAllWatermarks())).map(toWatermark);
}

/** How many parts of records the database has refused, which are kept beside it, and when it did so last. */
export async function asideCount(
  database: Pick<Database, "read">,
): Promise<{ items: number; lastAtMs: number }> {
  const [row] = await database.read(countAside());
  return { items: Number(row!["items"]), lastAtMs: Number(row!["last_at"] ?? 0) };
}

/** Refuses a pod that would keep logs in the database while they are on streams. */
export async function refuseStreams(database: Pick<Database, "read">): Promise<void> {
  if ((await logPlaceOf(database)).place === "sql") return;
  throw new FlotillaError(
    "unsupported",
    "the logs of this store's sessions are on NATS: give this pod the `nats` of the others",
  );
}
