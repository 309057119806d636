import process from "node:process";
import type { DatabaseSync as SqliteDatabase } from "node:sqlite";
import { FlotillaError } from "../../base/errors.ts";

export type { StatementSync } from "node:sqlite";

/** As `engines` of package.json and the command say. */
const needed = [22, 18] as const;

/** An older Node is refused by name: without this it would fail on whatever it doesn't have. */
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
 * The SQLite that comes with Node. An `import` of it fails on a Node that has none before any code
 * runs, and so before it can be said which Node is needed. So does an `import` by name of what a built-in
 * module of an older Node lacks, such as `hash` of `node:crypto`: that is `crypto.hash` wherever it is used.
 */
export const { DatabaseSync } = process.getBuiltinModule("node:sqlite");
export type DatabaseSync = SqliteDatabase;
