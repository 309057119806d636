import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import process from "node:process";
import { type Found, installedPrograms } from "./installed.ts";

/** Installs Debian's server. It isn't started: what runs for the tests is a cluster of their own. */
export function installDebian(): Found {
  if (!existsSync("/usr/bin/apt-get")) return { none: "this isn't Debian: there is no apt-get" };
  if (process.getuid?.() !== 0) return { none: "only root may install packages" };
  console.error("Getting a Postgres server for the tests, once: Debian's, with apt-get …");
  // A runlevel without services keeps the package from starting a server of its own.
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" };
  const apt = (...args: string[]) => spawnSync("apt-get", args, { env, encoding: "utf8" });
  apt("update");
  const installed = apt("install", "-y", "--no-install-recommends", "postgresql");
  const found = installedPrograms();
  if (found !== undefined) return found;
  return { none: `apt-get install postgresql failed: ${installed.stderr}` };
}
