import { messageOf } from "../../base/errors.ts";
import type { Logger } from "../../base/log.ts";
import { systemNow } from "./dialect.ts";
import { DatabaseSync } from "./driver.ts";

/** What earlier releases have written into defaults. It needs SQLite 3.42. */
const unportableNow = "cast(unixepoch('subsec') * 1000 as integer)";

const unportable = `from sqlite_schema
  where type = 'table' and name like 'flotilla\\_%' escape '\\' and instr(sql, ${quoted(unportableNow)}) > 0`;

/** Spells the defaults of our tables as those of new files are. */
const portableDefaults = `update sqlite_schema
  set sql = replace(sql, ${quoted(unportableNow)}, ${quoted(systemNow)})
  where rowid in (select rowid ${unportable})`;

// A commit of another takes less. Whatever is in the way for longer is met again at the next opening.
const busyMs = 1_000;

/**
 * Lets programs with an older SQLite insert into a file that an earlier release has made. Defaults are
 * changed in the text of the schema, since `alter table` can't, and copying a table would take as long as
 * it is large: https://sqlite.org/lang_altertable.html#otheralter. Pods need none of it, so that a failure
 * is a warning.
 */
export function makePortable(path: string, log?: Logger): void {
  let db: DatabaseSync | undefined;
  try {
    db = new DatabaseSync(path, { timeout: busyMs });
    if (db.prepare(`select 1 ${unportable}`).get() !== undefined) changeDefaults(db);
  } catch (error) {
    log?.warn(
      { error: messageOf(error) },
      "the defaults of the tables couldn't be changed: plain inserts need SQLite 3.42 or newer",
    );
  } finally {
    db?.close();
  }
}

function changeDefaults(db: DatabaseSync): void {
  db.exec("begin immediate");
  // Nodes that have this have the schema locked unless they are told.
  db.enableDefensive?.(false);
  db.exec("pragma writable_schema = on");
  const { schema_version: version } = db.prepare("pragma schema_version").get() as {
    schema_version: number;
  };
  db.exec(portableDefaults);
  // Tells other connections to read the schema again.
  db.exec(`pragma schema_version = ${version + 1}`);
  db.exec("commit");
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}
