import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";

const version = "22.18.0";

/**
 * The oldest Node that is supported, from npm, where it is one package per platform. It is fetched
 * once and kept where temporary files are. Gives why, where it can't be had.
 */
export function oldestNode(): { node: string } | { none: string } {
  const name = `node-${process.platform}-${process.arch}`;
  const kept = join(tmpdir(), `flotilla-node-${version}-${process.getuid?.()}`);
  const node = join(kept, "node_modules", name, "bin", "node");
  if (!existsSync(node)) {
    const folder = mkdtempSync(`${kept}-`);
    const flags = ["--prefix", folder, "--ignore-scripts", "--no-save", "--no-audit", "--no-fund"];
    const npm = spawnSync("npm", ["install", ...flags, `${name}@${version}`], {
      cwd: folder,
      encoding: "utf8",
      timeout: 120_000,
    });
    // Somebody else may have been faster; then theirs is as good.
    if (npm.status === 0 && !existsSync(kept)) renameSync(folder, kept);
    rmSync(folder, { recursive: true, force: true });
    if (npm.status !== 0) return { none: `npm has no ${name}@${version}: ${npm.stderr}` };
  }
  const ran = spawnSync(node, ["--version"], { encoding: "utf8" });
  if (ran.stdout?.trim() === `v${version}`) return { node };
  return { none: `${node} doesn't run here` };
}
