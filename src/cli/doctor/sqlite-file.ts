import { messageOf } from "../../base/errors.ts";
import type { Database, Durability } from "../../store/database.ts";
import {
  type FileFacts,
  fileFacts,
  findDamage,
  journalMode,
  openReadOnly,
  sqliteVersion,
} from "../../store/sqlite/inspect.ts";
import { type Check, failed, ok, warn } from "./check.ts";
import { checkFleet, type FleetOptions } from "./fleet.ts";
import { attempt, isSchemaOutdated, schemaCheck } from "./schema.ts";

const mib = 1024 * 1024;
const gib = 1024 * mib;
const freeFailBytes = 64 * mib;
const freeWarnBytes = gib;
// Checkpoints keep it near 16 MiB; far above that, a reader blocks them.
const walWarnBytes = 128 * mib;
// Reading more than this takes minutes, too long for this command.
const checkedBytes = 4 * gib;

/** Checks a SQLite file and its contents. */
export async function checkSqliteFile(
  path: string,
  durability: Durability,
  options: FleetOptions,
): Promise<Check[]> {
  const file = fileFacts(path);
  const checks = [ok("sqlite", sqliteVersion()), fileCheck(file), spaceCheck(file)];
  if (file.kind !== "file" || !file.readable) return checks;
  let database: Database;
  try {
    database = openReadOnly(file.path);
  } catch (error) {
    return [...checks, failed("open", messageOf(error))];
  }
  try {
    checks.push(...(await checkContents(database, file, durability, options)));
  } finally {
    await database.close();
  }
  return checks;
}

async function checkContents(
  database: Database,
  file: FileFacts,
  durability: Durability,
  options: FleetOptions,
): Promise<Check[]> {
  const damage = await damageCheck(database, file);
  const checks = [await attempt("journal", () => journalCheck(database)), walCheck(file)];
  checks.push(
    durability === "full"
      ? ok("durability", "full: synchronous=FULL, a power cut loses nothing acked")
      : warn("durability", "relaxed: synchronous=NORMAL, a power cut may lose the last moments"),
    damage,
  );
  const schema = await attempt("schema", () => schemaCheck(database));
  checks.push(schema);
  if (damage.verdict === "fail" || isSchemaOutdated(schema)) {
    return checks;
  }
  return [...checks, ...(await checkFleet(database, options))];
}

function fileCheck({ kind, path, readable, writable, sizeBytes }: FileFacts): Check {
  if (kind === "missing") {
    return failed("file", `there is none at ${path}: check the path, or run \`flotilla migrate\``);
  }
  if (kind === "other") return failed("file", `${path} isn't a file: check the path`);
  if (!readable) return failed("file", `${path} can't be read: check its permissions`);
  if (!writable) {
    return failed(
      "file",
      `${path} can't be written: check the permissions of it and of its folder`,
    );
  }
  return ok("file", `${path}, ${size(sizeBytes)}`);
}

function spaceCheck({ freeBytes }: FileFacts): Check {
  if (freeBytes === undefined) return failed("disk", "the folder of the file doesn't exist");
  const text = `${size(freeBytes)} free`;
  if (freeBytes < freeFailBytes) return failed("disk", `${text}: the store will soon be full`);
  return freeBytes < freeWarnBytes
    ? warn("disk", `${text}: free some space soon`)
    : ok("disk", text);
}

async function journalCheck(database: Database): Promise<Check> {
  const mode = await journalMode(database);
  return mode === "wal"
    ? ok("journal", "wal")
    : warn("journal", `${mode}; the next pod that starts switches it to wal`);
}

function walCheck({ walBytes }: FileFacts): Check {
  const text = `write-ahead log of ${size(walBytes)}`;
  return walBytes > walWarnBytes
    ? warn("wal", `${text}: a long-running reader blocks checkpoints`)
    : ok("wal", text);
}

async function damageCheck(database: Database, { path, sizeBytes }: FileFacts): Promise<Check> {
  if (sizeBytes > checkedBytes) {
    return warn(
      "integrity",
      `not checked, the file is large: sqlite3 ${path} 'pragma quick_check'`,
    );
  }
  return attempt("integrity", async () => {
    const damage = await findDamage(database);
    return damage === undefined
      ? ok("integrity", "quick_check found nothing")
      : failed("integrity", `${damage}: restore the file from a back-up`);
  });
}

function size(bytes: number): string {
  if (bytes >= gib) return `${(bytes / gib).toFixed(1)} GiB`;
  return bytes >= mib ? `${(bytes / mib).toFixed(1)} MiB` : `${Math.ceil(bytes / 1024)} KiB`;
}
