import * as changes from "../../src/changes/sql.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

const bounds = { rows: 100, bytes: 1_000_000 };

export const changesStatements: RoomStatements = {
  "src/changes/sql.ts": sqlFile(changes, {
    readState: () => changes.readState(),
    readLast: () => changes.readLast(),
    readPage: () => [
      changes.readPage({ mark: 7, seq: 1, subjects: "all" }, bounds),
      changes.readPage({ mark: 7, seq: 1, subjects: 3 }, bounds),
    ],
    readTenants: () => changes.readTenants(["session-1"]),
    beginRecording: () => changes.beginRecording("life-1", 60_000),
    endRecording: () => changes.endRecording(),
    setKept: () => changes.setKept(60_000),
    noteHorizon: () => changes.noteHorizon(),
    renewLife: () => changes.renewLife("life-1", "life-2"),
    pruneBatch: () => changes.pruneBatch(1_000),
    hasOldChanges: () => changes.hasOldChanges(),
  }),
};
