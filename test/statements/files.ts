import * as files from "../../src/files/sql/files.ts";
import * as links from "../../src/files/sql/task-links.ts";
import { sql } from "../../src/store/sql.ts";
import { type RoomStatements, sqlFile } from "./examples.ts";

const upload = {
  fileId: "file-1",
  beganAt: 1_764_000_000_000,
  tenant: "acme",
  owner: { kind: "session", id: "session-1" },
  hash: "ab".repeat(32),
  size: 300_000,
  place: "store",
  metadata: '{"mediaType":"image/png"}',
  kept: false,
} as const;
const link = {
  taskId: "task-1",
  tenant: "acme",
  hash: upload.hash,
  from: { kind: "upload", id: "upload-1" },
} as const;
const quotas = { ownerFiles: 10, ownerBytes: 1_000, tenantFiles: 100, tenantBytes: 10_000 };

export const fileStatements: RoomStatements = {
  "src/files/sql/files.ts": sqlFile(files, {
    beginUpload: () => files.beginUpload("acme", "file-1", "store"),
    insertPart: () => files.insertPart("file-1", 0, "AAAA"),
    readPart: () => files.readPart("file-1", 0),
    finishUpload: () => files.finishUpload(upload, quotas),
    readUsed: () => files.readUsed(upload.owner),
    keepReferences: () =>
      files.keepReferences({ tenant: "acme", sessionId: "session-1" }, [upload.hash]),
    readReferences: () => files.readReferences([upload.owner], [upload.hash]),
    readReference: () => files.readReference(upload.owner, upload.hash),
    deleteReferencesOf: () => files.deleteReferencesOf("session", sql`select 'session-1'`),
    deleteReferencesAmong: () => files.deleteReferencesAmong("task", ["session-1"]),
    findUnsent: () => files.findUnsent(3_600_000, 500),
    dropUnsent: () => files.dropUnsent([{ ...upload.owner, hash: upload.hash }], 3_600_000),
    readReferringOwners: () => files.readReferringOwners("task", "", 500),
    dropReferencesToOthers: () => files.dropReferencesToOthers("session-1", sql`${"acme"}`),
    dropReferences: () => files.dropReferences(sql`owner_id = 'task-1'`),
    findUnused: () => files.findUnused(3_600_000, 500),
    deleteUnused: () => files.deleteUnused(["file-1"], 3_600_000),
    closeRemnants: () => files.closeRemnants(3_600_000),
    closeRemnant: () => files.closeRemnant("file-1"),
    findClosed: () => files.findClosed(["store", "folder"], "", 100),
    copyReferences: () =>
      files.copyReferences(
        { sessionId: "session-2", parentId: "session-1" },
        { tenant: "acme", isHeld: sql`1 = 1` },
      ),
    deleteParts: () => files.deleteParts("file-1"),
    dropRemnant: () => files.dropRemnant("file-1"),
  }),
  "src/files/sql/task-links.ts": sqlFile(links, {
    lockSources: () => links.lockSources([link]),
    haveSources: () => sql`select 1 from task where ${links.haveSources([link])}`,
    linkFiles: () => links.linkFiles([link]),
    findUnlinked: () => links.findUnlinked([link]),
    replaceFiles: () =>
      links.replaceFiles([link], sql`select 'task-0' as task_id, 'task-1' as new_id`),
    copyTaskFiles: () => links.copyTaskFiles([{ from: "task-1", to: "task-2" }]),
  }),
};
