import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";

const oldest = 14;
const debianFolder = "/usr/lib/postgresql";

/** The folder of an installed Postgres server's programs; Debian's is installed where that is allowed. */
export function serverPrograms(): string {
  const found = onPath() ?? inDebianFolder();
  if (found) return found;
  if (process.getuid?.() === 0 && existsSync("/usr/bin/apt-get")) {
    const quiet = {
      stdio: "ignore" as const,
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive" },
    };
    spawnSync("apt-get", ["update"], quiet);
    spawnSync("apt-get", ["install", "-y", "--no-install-recommends", "postgresql"], quiet);
    const installed = inDebianFolder();
    if (installed) return installed;
  }
  throw new Error(
    `these tests need a Postgres server, version ${oldest} or later: install one (Debian: apt-get install postgresql) or put initdb and pg_ctl on the PATH`,
  );
}

function onPath(): string | undefined {
  try {
    return execFileSync("pg_config", ["--bindir"], {
      encoding: "utf8",
      stdio: ["ignore", "pipe", "ignore"],
    })
      .trim()
      .split("\n")
      .find((folder) => existsSync(join(folder, "initdb")));
  } catch {
    return undefined;
  }
}

function inDebianFolder(): string | undefined {
  if (!existsSync(debianFolder)) return undefined;
  return readdirSync(debianFolder)
    .map(Number)
    .filter((version) => version >= oldest)
    .toSorted((a, b) => b - a)
    .map((version) => join(debianFolder, String(version), "bin"))
    .find((folder) => existsSync(join(folder, "initdb")));
}
