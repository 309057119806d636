/**
 * Notes each commit on the store's file as it returns: up to which byte of the write-ahead log it has come,
 * and whether it was flushed. Loaded into every thread of a process, it stands between the store and
 * Node's SQLite. A commit counts as flushed if its connection says `synchronous = FULL`, with which SQLite
 * flushes the log before it returns: that it does, and that the disk keeps what was flushed, is believed.
 */
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import process from "node:process";
import type { DatabaseSync } from "node:sqlite";

const headerBytes = 32;
const frameHeaderBytes = 24;
const { DatabaseSync: Database } = process.getBuiltinModule("node:sqlite");
const path = process.env["POWER_STORE"]!;
/** What happened in the process, in order: each line is one write at the end of the file. */
const journal = openSync(process.env["POWER_JOURNAL"]!, "a");

export function note(line: Readonly<Record<string, unknown>>): void {
  writeSync(journal, `${JSON.stringify(line)}\n`);
}

type Position = { readonly salt: string; readonly end: number };
type Begun = { readonly from: Position; readonly changes: number };

const exec = Database.prototype.exec;
const begun = new WeakMap<DatabaseSync, Begun>();
/** Where the last look at the log ended, at a commit. */
let known: Position = { salt: "", end: headerBytes };

Database.prototype.exec = function (this: DatabaseSync, text: string): void {
  if (text === "begin immediate") {
    exec.call(this, text);
    // The lock is held, so that no other connection appends until the commit.
    known = endOfLog(known, "last");
    begun.set(this, { from: known, changes: changesOf(this) });
    return;
  }
  const before = text === "commit" ? begun.get(this) : undefined;
  if (!before) return exec.call(this, text);
  const isEmpty = changesOf(this) === before.changes;
  const [level] = this.prepare("pragma synchronous").all() as [{ synchronous: number }];
  exec.call(this, text);
  begun.delete(this);
  if (isEmpty) return;
  note({ what: "commit", flushed: level.synchronous >= 2, ...endOfLog(before.from, "first") });
};

function changesOf(db: DatabaseSync): number {
  return Number(
    (db.prepare("select total_changes() as changes").get() as { changes: number }).changes,
  );
}

/** The end of the first commit behind a position, or of the last. */
function endOfLog(from: Position, which: "first" | "last"): Position {
  const file = open(`${path}-wal`);
  if (file === undefined) return { salt: "", end: headerBytes };
  try {
    const header = Buffer.alloc(headerBytes);
    if (readSync(file, header, 0, headerBytes, 0) < headerBytes)
      return { salt: "", end: headerBytes };
    const salt = header.toString("hex", 16, 24);
    const frameBytes = frameHeaderBytes + header.readUInt32BE(8);
    let end = salt === from.salt ? from.end : headerBytes;
    const frame = Buffer.alloc(frameHeaderBytes);
    for (let at = end; readSync(file, frame, 0, frameHeaderBytes, at) === frameHeaderBytes;) {
      // What an earlier log has left behind has other salts.
      if (frame.toString("hex", 8, 16) !== salt) break;
      at += frameBytes;
      // The last frame of a commit says how long the file is then.
      if (frame.readUInt32BE(4) === 0) continue;
      end = at;
      if (which === "first") break;
    }
    return { salt, end };
  } finally {
    closeSync(file);
  }
}

function open(file: string): number | undefined {
  try {
    return openSync(file, "r");
  } catch {
    return undefined;
  }
}
