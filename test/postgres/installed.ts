import { spawnSync } from "node:child_process";
import { existsSync, globSync, realpathSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";
import process from "node:process";
import { unprivileged } from "./user.ts";

export const oldestVersion = 15;

/** A folder of programs, or why there is none. */
export type Found = string | { readonly none: string };

/** A path of the machine that tests run on. Another root has a test see a machine that has nothing. */
export function onMachine(path: string): string {
  return join(process.env["FLOTILLA_TEST_ROOT"] ?? "/", path);
}

/** Where packages put the programs: Debian, Red Hat, Homebrew on both kinds of Mac, Postgres.app. */
const usualFolders = [
  "/usr/lib/postgresql/*/bin",
  "/usr/pgsql-*/bin",
  "/opt/homebrew/opt/postgresql*/bin",
  "/usr/local/opt/postgresql*/bin",
  "/Applications/Postgres.app/Contents/Versions/*/bin",
].map(onMachine);

/** The programs of the newest server that is installed and that the tests' user may run. */
export function installedPrograms(folders = candidates()): string | undefined {
  const usable = folders
    .map((folder) => ({ folder: ownFolder(folder), version: versionIn(folder) }))
    .filter(({ version }) => version >= oldestVersion);
  return usable.toSorted((a, b) => b.version - a.version)[0]?.folder;
}

export function hasPrograms(folder: string): boolean {
  return versionIn(folder) >= oldestVersion;
}

function candidates(): string[] {
  const onPath = (process.env["PATH"] ?? "").split(delimiter);
  const named = spawnSync("pg_config", ["--bindir"], { encoding: "utf8" }).stdout?.trim();
  return [...onPath, ...(named ? [named] : []), ...globSync(usualFolders)];
}

/** A folder on the path may have links to some of the programs alone: the one that they lead to has all. */
function ownFolder(folder: string): string {
  const server = join(folder, "postgres");
  return existsSync(server) ? dirname(realpathSync(server)) : folder;
}

/** The version of the server in a folder, 0 where there is none that can be run. */
function versionIn(folder: string): number {
  if (!["initdb", "postgres"].every((program) => existsSync(join(folder, program)))) return 0;
  // Asked as the user that will run it: a file in another user's home may be closed to it.
  const asked = spawnSync(join(folder, "postgres"), ["--version"], {
    ...unprivileged(),
    cwd: "/",
    encoding: "utf8",
  });
  const [, major = 0, minor = 0] = /(\d+)(?:\.(\d+))?/.exec(asked.stdout ?? "") ?? [];
  return Number(major) + Number(minor) / 1_000;
}
