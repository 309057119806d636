import * as audit from "../../src/audit/sql.ts";
import { sql } from "../../src/store/sql.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

export const newEntry = {
  id: "act-1",
  actor: "key/web",
  tenant: "default",
  userId: "zoe",
  keyName: "web",
  role: "operator",
  address: "10.0.0.1",
  action: "tasks.cancel",
  subject: "task-1",
  filter: null,
  reason: null,
  actId: "click-1",
};

/** The entry of an act, as rooms are given it. */
export const entry = (facts?: audit.EntryFacts) => [audit.insertEntry(newEntry, facts)];

const cursor = { atMs: 1, id: "act-1" };
const filter = { actor: "key/web", action: "tasks.cancel", subject: "task-1" };

export const auditStatements: RoomStatements = {
  "src/audit/sql.ts": sqlFile(audit, {
    insertEntry: () => audit.insertEntry(newEntry),
    insertDecided: () =>
      audit.insertDecided(
        [{ ...newEntry, before: "{}", after: "{}", logId: 1 }],
        (logId) => sql`${logId} = 1`,
      ),
    readFull: () => audit.readFull(),
    countEntry: () => audit.countEntry("act-1", 250, 10),
    endEntry: () => [audit.endEntry("act-1"), audit.endEntry("act-1", sql`1 = 1`)],
    readEntry: () => [audit.readEntry(newEntry), audit.readEntry({ ...newEntry, actId: null })],
    listEntries: () => [
      audit.listEntries({ limit: 51 }),
      audit.listEntries({ actor: "key/web", action: "tasks.cancel", limit: 51 }),
      audit.listEntries({ ...filter, sinceMs: 1, untilMs: 2, before: cursor, limit: 51 }),
    ],
    deleteOldEntries: () => audit.deleteOldEntries(1_000, 100),
    deleteOldestOf: () => audit.deleteOldestOf("program", 100),
    countEntries: () => audit.countEntries(),
    hasOldEntries: () => audit.hasOldEntries(1_000),
    markFull: () => audit.markFull("act-2", 1_000),
    endFull: () => audit.endFull(),
  }),
};
