import process from "node:process";
import type { DatabaseSync as SqliteDatabase } from "node:sqlite";
import { FlotillaError } from "../../base/errors.ts";

export type { StatementSync } from "node:sqlite";

/** Must match `engines` in package.json and the command. */
const needed = [22, 18] as const;

/**
 * Refuses an older Node with a clear message. Without this it would fail on the first missing
 * feature.
 */
function checkNode(version: string): void {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (major > needed[0] || (major === needed[0] && minor >= needed[1])) return;
  throw new FlotillaError(
    "unsupported",
    `flotilla needs Node ${needed.join(".")} or newer, and this is Node ${version} (${process.execPath}): install a newer Node, or add one to this project with \`npm install --save-dev node@24\` and run your program through it with \`npx node\``,
  );
}

checkNode(process.versions.node);

/**
 * Node's own SQLite. On a Node without it, an `import` fails before any code runs, and so before
 * the needed version can be reported. The same holds for an `import` by name of something that a
 * built-in module of an older Node lacks, such as `hash` of `node:crypto`: that is why
 * `crypto.hash` is used everywhere.
 */
export const { DatabaseSync } = process.getBuiltinModule("node:sqlite");
export type DatabaseSync = SqliteDatabase;
