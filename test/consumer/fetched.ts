import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";

/**
 * Packages from npm that are too large to be installed with everything else, in a folder of their own.
 * They are fetched once and kept where temporary files are. Gives why, where they can't be had.
 */
export function fetched(
  name: string,
  packages: readonly string[],
): { folder: string } | { none: string } {
  const hash = createHash("sha256").update(packages.join()).digest("hex").slice(0, 12);
  const folder = join(tmpdir(), `flotilla-${name}-${hash}-${process.getuid?.()}`);
  if (existsSync(folder)) return { folder };
  const unfinished = mkdtempSync(`${folder}-`);
  const flags = [
    "--prefix",
    unfinished,
    "--ignore-scripts",
    "--no-save",
    "--no-audit",
    "--no-fund",
  ];
  const npm = spawnSync("npm", ["install", ...flags, ...packages], {
    cwd: unfinished,
    encoding: "utf8",
    timeout: 240_000,
  });
  // Another process may have been faster; then its copy is as good.
  if (npm.status === 0 && !existsSync(folder)) renameSync(unfinished, folder);
  rmSync(unfinished, { recursive: true, force: true });
  return npm.status === 0 ? { folder } : { none: `npm has no ${packages.join()}: ${npm.stderr}` };
}
