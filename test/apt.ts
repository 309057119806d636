import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import process from "node:process";

/** Installs a package of Debian's. What is said is why that failed, if it did. */
export function installPackage(name: string, what: string): string | undefined {
  if (!existsSync("/usr/bin/apt-get")) return "this isn't Debian: there is no apt-get";
  if (process.getuid?.() !== 0) return "only root may install packages";
  console.error(`Getting ${what} for the tests, once: Debian's, with apt-get …`);
  // A runlevel without services keeps packages from starting what they bring.
  const env = { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" };
  const apt = (...args: string[]) => spawnSync("apt-get", args, { env, encoding: "utf8" });
  apt("update");
  const { status, stderr } = apt("install", "-y", "--no-install-recommends", name);
  return status === 0 ? undefined : `apt-get install ${name} failed: ${stderr}`;
}
