import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import process from "node:process";

/**
 * Sees to it that something from a Debian package is there. It is installed where that is allowed;
 * otherwise whoever needs it fails and says what is missing, because a test that skips shows nothing.
 */
export function needPackage<Found>(name: string, look: () => Found | undefined): Found {
  const before = look();
  if (before !== undefined) return before;
  if (process.getuid?.() === 0 && existsSync("/usr/bin/apt-get")) {
    console.error(`installing Debian's ${name}, once`);
    const quiet = {
      stdio: "ignore" as const,
      // A runlevel without services keeps a package from starting one of its own.
      env: { ...process.env, DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1" },
    };
    // Somebody else may be installing at the same time.
    const patient = ["-o", "DPkg::Lock::Timeout=120"];
    const install = [...patient, "install", "-y", "--no-install-recommends", name];
    if (spawnSync("apt-get", install, quiet).status !== 0) {
      spawnSync("apt-get", [...patient, "update"], quiet);
      spawnSync("apt-get", install, quiet);
    }
    const after = look();
    if (after !== undefined) return after;
  }
  throw new Error(`this needs ${name}: install it (Debian: apt-get install ${name})`);
}
