import { hasCode } from "../../base/errors.ts";
import type { Ids } from "../../base/ids.ts";
import type { Database } from "../../store/database.ts";
import { type Changes, changesOf } from "./changes.ts";
import type { StoredClientId, Journal } from "./journal.ts";
import {
  beatHeads,
  findIds,
  insertHeads,
  readBusy,
  readCheckpoint,
  readEntries,
  readHeader,
  readHeads,
  readNewest,
  readTail,
  releaseHeads,
  storeRecord,
  takeHead,
  toEntry,
  toHead,
  toHeader,
} from "./sql.ts";

/** A journal in the shared database. Each record is one transaction in one round trip. */
export function createSqlJournal({ database, ids }: { database: Database; ids: Ids }): Journal {
  const storedIds: Journal["storedIds"] = async (ids) =>
    (await database.read(findIds(ids))).map((row) => ({
      sessionId: row["session_id"] as string,
      clientId: row["client_id"] as string,
      seq: Number(row["seq"]),
    }));

  /** Client ids that were stored before under another seq. */
  const findStored = async ({ entries }: Changes): Promise<StoredClientId[]> => {
    const ids = entries.flatMap(({ sessionId, clientId }) =>
      clientId === null ? [] : [{ sessionId, clientId }],
    );
    const found = await storedIds(ids);
    const ownKeys = new Set(entries.map((each) => keyOf(each)));
    return found.filter((each) => !ownKeys.has(keyOf(each)));
  };

  return {
    async heads() {
      return (await database.read(readHeads())).map(toHead);
    },

    async create(logs) {
      if ((await database.read(readHeads())).length > 0) return;
      await database.write(insertHeads(Array.from({ length: logs }, () => ids.next())));
    },

    async take(seen, owner) {
      const [taken] = await database.write([takeHead(seen, owner)]);
      return taken!.map(toHead)[0];
    },

    async release(podId, logs) {
      if (logs.length > 0) await database.write([releaseHeads(podId, logs)]);
    },

    async beat(podId, logs) {
      if (logs.length === 0) return [];
      const [beaten] = await database.write([beatHeads(podId, logs)]);
      return beaten!.map((row) => Number(row["log_id"])).toSorted((one, other) => one - other);
    },

    async commit(at, record) {
      const changes = changesOf(record);
      try {
        const [moved] = await database.write(storeRecord(at, record.recordId, changes));
        const head = moved!.map(toHead)[0];
        return head ? { type: "committed", head } : { type: "fenced" };
      } catch (error) {
        // The database's error has no code of its own. Most likely a client id exists already, so read it.
        if (!hasCode(error, "internal")) throw error;
        const found = await findStored(changes);
        if (found.length === 0) throw error;
        return { type: "duplicate", found };
      }
    },

    async header(sessionId) {
      return (await database.read(readHeader(sessionId))).map(toHeader)[0];
    },

    async busy(logId) {
      return (await database.read(readBusy(logId))).map(toHeader);
    },

    storedIds,

    async entries(sessionId, page) {
      return (await database.read(readEntries(sessionId, page))).map(toEntry);
    },

    async tail(sessionId, page) {
      return (await database.read(readTail(sessionId, page))).map(toEntry).toReversed();
    },

    async newest(sessionId, messageId) {
      return (await database.read(readNewest(sessionId, messageId))).map(toEntry)[0];
    },

    async checkpoint(sessionId) {
      const [row] = await database.read(readCheckpoint(sessionId));
      if (!row) return undefined;
      const epoch = Number(row["epoch"]);
      // A checkpoint left by an interrupted turn does not belong to the current turn.
      if (toHeader(row).work?.epoch !== epoch) return undefined;
      return { sessionId, epoch, attempt: Number(row["attempt"]), body: row["body"] };
    },
  };
}

function keyOf(each: { sessionId: string; clientId: string | null; seq: number }): string {
  return JSON.stringify([each.sessionId, each.clientId, each.seq]);
}
